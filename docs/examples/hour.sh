#!/usr/bin/env bash
# Repeats docs/results/hour.md: sixteen hours of training, each on one core, two at a time (Linux).
#
#     docs/examples/hour.sh    # after `make setup`
#
# It installs the other libraries into hour/, and writes hour/LIBRARY-GAME-seed1.csv. A curve that is
# there is not made again; a folder without its curve is of an hour that was cut off: remove it.
set -euo pipefail
cd "$(dirname "$0")/../.."
# Agent steps that a core makes in an hour, where the learning rate ends.
export JAXRL_STEPS=${JAXRL_STEPS:-25000000} SF_STEPS=${SF_STEPS:-1500000}

install() { # FOLDER PACKAGE...
  [ -e "hour/$1" ] || { python3 -m venv "hour/$1" && "hour/$1/bin/pip" install "${@:2}"; }
}
install sb3 "stable-baselines3[extra]" ale-py
install sf sample-factory envpool==0.8.4 "shimmy<2"

hour() { # LIBRARY GAME
  local python options=()
  case $1 in
    jaxrl) python=.venv/bin/python options=(--steps "$JAXRL_STEPS") ;;
    sb3_*) python=hour/sb3/bin/python ;;
    sample_factory) python=hour/sf/bin/python options=(--steps "$SF_STEPS") ;;
  esac
  [ -e "hour/$1-$2-seed1.csv" ] ||
    taskset -c "$CORE" "$python" docs/examples/hour.py "$1" "$2" "${options[@]}" >"hour/$1-$2.log" 2>&1
}
export -f hour
for game in breakout name_this_game pong qbert; do
  for library in jaxrl sb3_ppo sb3_a2c sample_factory; do
    echo "$library $game"
  done
done | xargs -P 2 -L 1 --process-slot-var=CORE bash -c 'hour "$@"' hour
.venv/bin/python -m tools.hour_tables hour/*.csv
