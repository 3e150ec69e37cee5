#!/usr/bin/env bash
# Trains each library for an hour on four games: sixteen hours of one core, on two cores (Linux).
#
#     docs/examples/hour.sh                       # after `make setup`
#     GAMES="pong qbert" docs/examples/hour.sh    # two of the games
#
# It installs the other libraries into hour/, with Python 3.11, the newest that EnvPool 0.8.4 has a
# wheel for, writes hour/LIBRARY-GAME-seed1.csv, and prints tables of them. A curve that is there is
# not made again; a folder without its curve is of an hour that was cut off: remove it.
set -euo pipefail
cd "$(dirname "$0")/../.."
PYTHON=${PYTHON:-python3.11}
# Agent steps that a core makes in an hour, where the learning rate ends: hour.py says how to find
# them. jaxrl trains on to its last step, however long it takes.
JAXRL_STEPS=${JAXRL_STEPS:-25000000} SF_STEPS=${SF_STEPS:-950000}
GAMES=${GAMES:-breakout name_this_game pong qbert}

install() { # FOLDER PACKAGE...
  [ -e "hour/$1/installed" ] && return
  "$PYTHON" -m venv "hour/$1"
  "hour/$1/bin/pip" install "${@:2}"
  touch "hour/$1/installed"
}

hour() { # CORE LIBRARY GAME
  local name="$2-$3" python options=()
  case $2 in
    jaxrl) python=.venv/bin/python options=(--steps "$JAXRL_STEPS") ;;
    sb3_*) python=hour/sb3/bin/python ;;
    sample_factory) python=hour/sf/bin/python options=(--steps "$SF_STEPS") ;;
  esac
  [ -e "hour/$name-seed1.csv" ] ||
    taskset -c "$1" "$python" docs/examples/hour.py "$2" "$3" "${options[@]}" >"hour/$name.log" 2>&1 ||
    { echo "no curve, see hour/$name.log" >&2 && return 1; }
}

hours() { # CORE LIBRARY...
  local core=$1 game library status=0
  shift
  for game in $GAMES; do
    for library; do
      hour "$core" "$library" "$game" || status=1
    done
  done
  return $status
}

install sb3 "stable-baselines3[extra]==2.9.2" ale-py==0.12.1
install sf sample-factory==2.1.1 envpool==0.8.4 "shimmy<2"
status=0
hours 0 jaxrl sb3_a2c &
hours 1 sb3_ppo sample_factory || status=1
wait $! || status=1
.venv/bin/python -m tools.hour_tables hour/*.csv
exit $status
