"""The commands that record contexts and fit screens on them."""

import argparse
from pathlib import Path
from typing import Any


def add_commands(commands: Any, parents: list[argparse.ArgumentParser]) -> None:
    """Add ``fit`` to the commands."""
    fit = commands.add_parser(
        "fit", parents=parents, help="fit clusters and active sets on recorded contexts (papers 000 and 001)"
    )
    fit.add_argument("method", choices=("clustered", "screened"), help="by k-means (000), or learned (001)")
    fit.add_argument("--contexts", metavar="DIR", required=True, help="made by fastdecode record")
    fit.add_argument(
        "--out", metavar="DIR", help="default: where the projection finds them, beside the model's weights"
    )
    fit.add_argument(
        "--per",
        choices=("direction", "target", "all"),
        default="direction",
        help="default: a screen for each direction",
    )
    fit.add_argument("--model", default="tatoeba-small", help="whose contexts they are (default: tatoeba-small)")
    fit.add_argument("--clusters", type=int, help="default: 400, learned: 100")
    fit.add_argument("--top", type=int, help="best tokens of a context that count (default: 1, learned: 5)")
    fit.add_argument("--budget", type=float, help="learned: tokens scored on average (default: 300)")
    fit.add_argument("--rounds", type=int, help="learned: turns of algorithm 1")
    fit.add_argument("--always", default="end", help="tokens in every set: end, none, or ids as in 0,5 (default: end)")
    fit.add_argument("--at-least", type=int, default=0, help="fill up smaller sets (default: 0)")
    fit.add_argument("--seed", type=int, default=0, help="default: 0")
    fit.set_defaults(run=_fit)


def _fit(options: argparse.Namespace) -> int:
    from fastdecode_lib.contexts import Contexts
    from fastdecode_lib.fitting import fit_screens
    from fastdecode_lib.projections.screen import save_screens
    from fastdecode_lib.projections.screened import Learning
    from fastdecode_lib.registry import screens_of
    from fastdecode_lib.translation import load

    model = load(options.model, device="cpu")
    contexts = Contexts.open(options.contexts)
    output = model.network.outputs[0]
    contexts.check_model(model.checkpoint.fingerprint, contexts.width, output.vocabulary)
    given = {name: value for name in ("clusters", "top", "rounds") if (value := getattr(options, name)) is not None}
    knobs: dict[str, Any] = {
        "always": _always(options.always, model),
        "at_least": options.at_least,
        "seed": options.seed,
    }
    if options.method == "screened":
        knobs |= {"budget": options.budget or 300.0, "learning": Learning(**given), "progress": True}
    else:
        for name in ("budget", "rounds"):
            if getattr(options, name) is not None:
                raise ValueError(f"--{name} belongs to learned screens, got it with clustered. Leave it out.")
        knobs |= given
    screens = fit_screens(contexts, options.method, per=options.per, **knobs)
    folder = Path(options.out or screens_of(model.checkpoint.folder, options.method))
    save_screens(screens, folder)
    for name, screen in screens.items():
        share = screen.sets.sizes.mean() / screen.sets.vocabulary
        print(f"{name}: {len(screen.sets)} clusters, on average {share:.1%} of the vocabulary active")
    print(folder)
    return 0


def _always(text: str, model: Any) -> tuple[int, ...]:
    """The tokens that ``--always`` names."""
    if text in ("end", "none"):
        return model.constraints().end if text == "end" else ()
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f"--always takes end, none or ids: got {text!r}. Example: 0,5.") from None
