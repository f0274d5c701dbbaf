"""What half precision costs and brings, on four nets and real data: the study that ships.

    python -m tests.benchmarks.study [--nets NAME ...] [--seeds 3] [--steps N]
        [--output notebooks/study.json] [--in-process]

Each net is trained in float32, bfloat16 and float16 by `compare_precisions`, each run in a
process of its own. After each net the file is written anew with what there is, so that an
interrupted study keeps its nets; nets in the file that were not asked for stay. With
`--runs FOLDER` an interrupted net continues, too.

Without `--output` the reports and the table are printed, and nothing is written.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import math
import os
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

import tf_amp_kit as amp
from tests.benchmarks.study_nets import STUDIES, Samples, Study

# Curves are kept as means over so many steps: enough to draw.
CURVE_STEPS = 10
COLUMNS = (
    *("net", "precision", "val loss", "metric", "worse by", "bound", "verdict"),
    *("step", "jit step", "memory", "estimate"),
)


def compared(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Compare the precisions on one net, and return what the file keeps of it."""
    study = STUDIES[name]
    train, validation = study.data()
    report = amp.compare_precisions(
        study.build,
        train,
        validation,
        precisions=("fp32", "bf16", "fp16"),
        steps=options.steps or study.steps,
        seeds=options.seeds,
        batch_size=study.batch_size,
        isolate=not options.in_process,
        resume=options.runs and Path(options.runs) / name,
    )
    return kept(study, train, validation, report)


def kept(study: Study, train: Samples, validation: Samples, report: Any) -> dict[str, Any]:
    """Return what is worth keeping, for JSON.

    Args:
        study: What was studied.
        train: Its training data.
        validation: Its validation data.
        report: The `ComparisonReport`.
    """
    return plain(
        {
            "data": study.source,
            "digest": digest(train, validation),
            "num_samples": [len(train[0]), len(validation[0])],
            "metric": study.metric,
            "machine": report.machine,
            "steps": report.num_steps,
            "batch_size": report.batch_size,
            "seeds": report.seeds,
            "tolerance": report.tolerance,
            "recommendation": report.recommendation,
            "notes": report.notes,
            "results": [_result(one) for one in report.results],
            "runs": [_run(one) for one in report.runs],
        }
    )


def digest(*samples: Samples) -> str:
    """Return a short name of data, by which two machines can tell that theirs are the same."""
    content = b"".join(
        np.ascontiguousarray(values).tobytes() for pair in samples for values in pair
    )
    return hashlib.sha256(content).hexdigest()[:12]


def curve(losses: Any) -> list[float]:
    """Return the mean losses of steps by tens, without those that are NaN."""
    tens = [losses[start : start + CURVE_STEPS] for start in range(0, len(losses), CURVE_STEPS)]
    known = [[loss for loss in ten if not math.isnan(loss)] for ten in tens]
    return [float(f"{np.mean(ten):.5g}") if ten else math.nan for ten in known]


def plain(value: Any) -> Any:
    """Return records, tuples and numbers as JSON takes them; None for what is not finite."""
    if dataclasses.is_dataclass(value):
        return plain(dataclasses.asdict(value))
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, (tuple, list)):
        return [plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def table(nets: dict[str, Any]) -> str:
    """Return the table of the study, in Markdown: one line for each net and precision.

    Worse by, and bound: of the validation loss, in percent of what float32 learned.
    """
    lines = [COLUMNS, ["---"] * len(COLUMNS)]
    lines += [_cells(name, net, one) for name, net in nets.items() for one in net["results"]]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _result(result: Any) -> dict[str, Any]:
    fields = ("name", "level", "num_pins", "verdict", "differences", "speed", "jit_speed", "memory")
    return {field: getattr(result, field) for field in fields}


def _run(run: Any) -> dict[str, Any]:
    """Return a run without its weights' drift and with a shorter curve."""
    fields = ("name", "seed", "skipped_steps", "loss_scale", "seconds", "failure")
    evaluations = [{"step": one.step, **one.values} for one in run.evaluations]
    known = {field: getattr(run, field) for field in fields}
    return {**known, "losses": curve(run.losses), "evaluations": evaluations}


def _cells(name: str, net: dict[str, Any], result: dict[str, Any]) -> list[str]:
    measures = {one["measure"]: one for one in result["differences"]}
    loss, metric = (measures.get(f"val_{one}", {}) for one in ("loss", net["metric"]))
    verdict = result["verdict"] or {"outcome": "-"}
    seconds = [(result[one] or {}).get("seconds") for one in ("speed", "jit_speed")]
    memory = [result["memory"][f"{one}_bytes"] for one in ("measured", "estimated")]
    return [
        name,
        result["name"],
        _figure(loss.get("value"), ".4f"),
        f"{_figure(metric.get('value'), '.4f')} {net['metric']}" if metric else "-",
        _figure(loss.get("share"), "+.2%"),
        _figure(_bound_share(loss), ".2%"),
        verdict["outcome"],
        *(_figure(one and one["median"] * 1e3, ".1f", " ms") for one in seconds),
        *(_figure(one and one / 1e6, ".0f", " MB") for one in memory),
    ]


def _bound_share(loss: dict[str, Any]) -> float | None:
    bound, learned = loss.get("bound"), loss.get("learned")
    return bound / learned if bound is not None and learned else None


def _figure(value: float | None, form: str, unit: str = "") -> str:
    return "-" if value is None else f"{value:{form}}{unit}"


def main(argv: list[str] | None = None) -> int:
    """Parse the command line, compare, and write and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nets", nargs="+", choices=STUDIES, default=list(STUDIES))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, help="other than each net's own")
    parser.add_argument("--output", type=Path, help="the file to write")
    parser.add_argument("--runs", help="a folder that keeps runs, to continue")
    help_text = "all runs in this process: faster, but without measured memory"
    parser.add_argument("--in-process", action="store_true", help=help_text)
    options = parser.parse_args(argv)
    nets = json.loads(options.output.read_text()) if _is_there(options.output) else {}
    for name in options.nets:
        nets[name] = compared(name, options)
        if options.output:
            options.output.write_text(json.dumps(nets, indent=1, allow_nan=False) + "\n")
    print(table(nets))
    return 0


def _is_there(path: Path | None) -> bool:
    return path is not None and path.exists()


if __name__ == "__main__":
    raise SystemExit(main())
