"""The project's own sentences: everyday and technical ones, with translations, for tables, examples and tests."""

from pathlib import Path

from fastdecode_lib.text.corpus import Pair

SENTENCES = (
    ("The train to the coast leaves at half past nine.", "Der Zug an die Küste fährt um halb zehn ab."),
    ("Can you tell me where the library is?", "Können Sie mir sagen, wo die Bibliothek ist?"),
    ("We forgot to close the window before the storm.", "Wir haben vergessen, vor dem Sturm das Fenster zu schließen."),
    ("My sister has been learning to play the piano for two years.", "Meine Schwester lernt seit zwei Jahren Klavier."),
    ("If it rains tomorrow, we will stay at home and read.", "Wenn es morgen regnet, bleiben wir zu Hause und lesen."),
    ("Nobody knew why the old clock had stopped.", "Niemand wusste, warum die alte Uhr stehen geblieben war."),
    ("Please put the bread on the table and call the children.",
     "Bitte stell das Brot auf den Tisch und ruf die Kinder."),
    ("He sold his car because he wants to ride his bicycle to work.",
     "Er hat sein Auto verkauft, weil er mit dem Fahrrad zur Arbeit fahren will."),
)  # fmt: skip
"""English and German, everyday sentences."""

TECHNICAL = (
    "Disconnect the power supply before you open the cover of the pump.",
    "The server writes each transaction to a log and confirms it only after the disk has answered.",
    "Tighten the four bolts crosswise with a torque of twenty newton metres.",
    "If the temperature of the bearing rises above ninety degrees, the control unit stops the motor.",
    "The compiler replaces the loop by vector instructions when the arrays do not overlap.",
    "Store the solution in a dark bottle and do not use it after six months.",
    "A cache line holds sixty-four bytes, so neighbouring values are loaded together.",
    "The sensor measures the distance to the wall by the time a pulse of light takes to return.",
    "Each packet carries a checksum that the receiver computes again and compares.",
    "Replace the filter when the pressure difference exceeds the value given in table three.",
    "The bridge was calculated for a load of forty tonnes and a wind of one hundred and fifty kilometres per hour.",
    "Before the update starts, the device checks whether the battery is charged to at least half.",
    "The alloy contains two percent of copper, which makes it harder but less resistant to corrosion.",
    "Insert the card with the contacts facing down until you hear a click.",
    "The algorithm sorts the edges by weight and adds each one that does not close a cycle.",
    "A valve in the return pipe keeps the water in the boiler from flowing back.",
    "The amplifier needs a warm-up of ten minutes before its readings are stable.",
    "Requests that take longer than thirty seconds are cancelled and reported to the administrator.",
    "Clean the lens with a dry cloth and never with alcohol or other solvents.",
    "The encoder turns the sentence into a sequence of vectors that the decoder reads at every step.",
)
"""English, twenty sentences as in manuals and textbooks, unlike the bundled model's training text."""

EXAMPLES = (
    ("en", "de", "My sister has been learning to play the piano for two years.",
     "Meine Schwester lernt seit zwei Jahren Klavier."),
    ("de", "en", "Wenn es morgen regnet, bleiben wir zu Hause und lesen.",
     "If it rains tomorrow, we will stay at home and read."),
    ("en", "fr", "The children are playing in the garden behind the old house.",
     "Les enfants jouent dans le jardin derrière la vieille maison."),
    ("en", "es", "Can you tell me where the library is?", "¿Puedes decirme dónde está la biblioteca?"),
    ("en", "de", "Disconnect the power supply before you open the cover of the pump.",
     "Trennen Sie die Stromversorgung, bevor Sie den Deckel der Pumpe öffnen."),
)  # fmt: skip
"""Source language, target language, sentence and its translation, for pictures and examples."""


def own_pairs(source: str, target: str) -> list[Pair]:
    """All 130 own sentences with their translations.

    Raises
    ------
    ValueError
        If a language is none of en, de, fr, es.
    """
    lines = Path(__file__).with_name("sentences.tsv").read_text(encoding="utf-8").splitlines()
    header, *rows = [line.split("\t") for line in lines]
    columns = dict(zip(header, zip(*rows, strict=True), strict=True))
    if source not in columns or target not in columns:
        raise ValueError(f"There are no own sentences for {source}-{target}: use languages of {', '.join(columns)}.")
    return list(zip(columns[source], columns[target], strict=True))
