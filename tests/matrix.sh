#!/usr/bin/env bash
# Runs the tests under several versions of Python, TensorFlow and Keras, each in an
# environment of its own, and prints a table. Takes about 20 minutes a row.
#
#   bash tests/matrix.sh                        every row
#   bash tests/matrix.sh 3.10:2.17.1:3.10.0     one: Python, TensorFlow, Keras
#
# What stands in PYTEST_ARGUMENTS is handed to pytest: "-k audit", for example.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

# The lowest pair that setup.cfg allows, with the Pythons at both ends of what that
# TensorFlow runs on, and the newest pair with every Python that it runs on.
readonly LOWEST=2.17.1:3.10.0 NEWEST=2.21.0:3.15.1
readonly ROWS=(
    "3.10:$LOWEST" "3.12:$LOWEST"
    "3.10:$NEWEST" "3.11:$NEWEST" "3.12:$NEWEST" "3.13:$NEWEST"
)

export TF_CPP_MIN_LOG_LEVEL=3
unset PYTHONPATH KERAS_BACKEND TF_USE_LEGACY_KERAS

# Prints the path of a Python, of the search path or of pyenv.
interpreter() {
    local candidate
    for candidate in "python$1" "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"$1".*/bin/python; do
        if "$candidate" -c "import sys; sys.exit('%d.%d' % sys.version_info[:2] != '$1')" 2>/dev/null
        then
            printf '%s\n' "$candidate"
            return
        fi
    done
    echo "There is no Python $1 here." >&2
    return 1
}

# Runs one row, and leaves what pytest said last in the file $2.
run_row() {
    local python tensorflow keras found environment
    IFS=: read -r python tensorflow keras <<<"$1"
    found=$(interpreter "$python") || return 1
    environment=$(mktemp -d)
    "$found" -m venv "$environment" &&
        "$environment/bin/pip" install -q \
            "tensorflow==$tensorflow" "keras==$keras" -e ".[test]" &&
        "$environment/bin/python" -m pytest -q -n 2 --dist loadfile ${PYTEST_ARGUMENTS:-} |
        tee "$2"
    local code=${PIPESTATUS[0]}
    rm -rf "$environment"
    return "$code"
}

(($#)) && rows=("$@") || rows=("${ROWS[@]}")
table=()
failures=0
log=$(mktemp)
for row in "${rows[@]}"; do
    printf '\n== Python, TensorFlow, Keras: %s\n' "${row//:/, }"
    : >"$log"
    run_row "$row" "$log" || failures=$((failures + 1))
    table+=("| ${row//:/ | } | $(tail -n 1 "$log" | tr -d '=') |")
done
rm -f "$log"
printf '\n| Python | TensorFlow | Keras | Result |\n|---|---|---|---|\n'
printf '%s\n' "${table[@]}"
exit "$((failures > 0))"
