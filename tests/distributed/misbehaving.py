"""A module for `processes.run_module` that does what a test of it asks for.

It does not load TensorFlow, which would take seconds of each of these tests.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path


def main(results: Path, kind: str) -> int:
    print(f"about to {kind}", flush=True)
    with results.open("w") as file:
        file.write(json.dumps({"case": "environment", "value": dict(os.environ)}) + "\n")
        file.write(json.dumps({"case": "group", "value": os.getpgid(0)}) + "\n")
        file.write(json.dumps({"case": "fails", "error": "Traceback: it failed"}) + "\n")
        file.write('{"case": "half a li')
    is_first = '"index": 0' in os.environ.get("TF_CONFIG", "")
    if kind == "hang" or (kind == "let one fail" and not is_first):
        # Whoever kills only its direct child leaves this one behind.
        subprocess.run([sys.executable, "-c", "import time; time.sleep(600)"], check=False)
        time.sleep(600)
    return 3 if kind == "let one fail" else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[3]))
