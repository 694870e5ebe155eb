"""Makes sql92.jsonl: expressions, properties, and what Java's org.apache.rocketmq.filter answers.

    python -m tests.data.filter.make FOLDER_OF_JARS

One line an expression: [expression, answers, [properties, …]]. `answers` has a letter for each properties: T true, F
false, N null, E it throws; or is X: it does not compile.
"""

import base64
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.unit.filter.expressions_at_random import WRONG, expression, properties

HERE = Path(__file__).parent
EXPRESSIONS = 1_000
SETS = 6


def main() -> None:
    rng = random.Random(92)
    texts = list(dict.fromkeys([*WRONG, *(expression(rng) for _ in range(2 * EXPRESSIONS))]))[:EXPRESSIONS]
    cases = [(text, [properties(rng) for _ in range(SETS)]) for text in texts]
    answers = ask(Path(sys.argv[1]), cases)
    with open(HERE / "sql92.jsonl", "w", encoding="utf-8") as file:
        for (text, sets), answer in zip(cases, answers, strict=True):
            file.write(json.dumps([text, answer, [] if answer == "X" else sets], ensure_ascii=False) + "\n")


def ask(jars: Path, cases: list[tuple[str, list[dict[str, str]]]]) -> list[str]:
    with tempfile.TemporaryDirectory() as classes:
        subprocess.run(["javac", "-cp", f"{jars}/*", "-d", classes, HERE / "Answers.java"], check=True)
        lines = "".join(" ".join(map(_encoded, [text, *map(_joined, sets)])) + "\n" for text, sets in cases)
        command = ["java", "-Xmx128m", "-cp", f"{classes}:{jars}/*", "Answers"]
        return subprocess.run(command, input=lines, text=True, capture_output=True, check=True).stdout.split()


def _joined(pairs: dict[str, str]) -> str:
    return "".join(f"{name}\x01{value}\x02" for name, value in pairs.items())


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


if __name__ == "__main__":
    main()
