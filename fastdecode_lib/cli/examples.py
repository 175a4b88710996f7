"""Examples of each command, printed below its help."""

EXAMPLES = {
    "translate": (
        'fastdecode translate "Where is the station?" --from en --to de --html passes.html',
        "fastdecode translate --file en.txt --from en --to de --decoder window:width=3",
    ),
    "compare": (
        "fastdecode compare --source en.txt --from en --to de --decoder greedy --decoder window:width=3 --baseline hf",
    ),
    "speedup": ("fastdecode speedup --model Helsinki-NLP/opus-mt-en-de --from en --to de --source en.txt",),
    "evaluate": (
        "fastdecode evaluate --from en --to de --source en.txt --reference de.txt --decoder greedy --decoder jacobi",
    ),
    "draft-table": ("fastdecode draft-table --model DIR --from en --to de --source en.txt",),
    "draft-head": ("fastdecode draft-head --model DIR --from en --to de --source en.txt",),
    "record": ("fastdecode record --from en --to de --source en.txt --out contexts",),
    "fit": ("fastdecode fit clustered --contexts contexts --clusters 50 --top 5 --out sets",),
    "list": ("fastdecode list", "fastdecode list decoders"),
    "train": ("fastdecode train", "fastdecode train tatoeba-small --updates 200"),
    "fetch": ("fastdecode fetch",),
    "experiment": ("fastdecode experiment --list", "fastdecode experiment parallel_decoding.examples --scale tiny"),
    "check": ("fastdecode check --cases 20",),
    "figures": ("fastdecode figures --out build/figures",),
}


def epilog(command: str) -> str:
    """The examples of a command, as the end of its help."""
    lines = EXAMPLES[command]
    return "\n".join([f"example{'s' if len(lines) > 1 else ''}:", *(f"  {line}" for line in lines)])
