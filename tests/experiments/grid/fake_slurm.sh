#!/usr/bin/env bash
# Stands for SLURM in tests: linked as sbatch, scontrol, squeue, scancel and srun, it runs jobs on this machine.
# Its books are files in $FAKE_SLURM: JOB.asked, JOB.done, and of each task JOB_TASK.pid (its script), .state, .requeue,
# and of each of its steps a folder JOB_TASK.STEP.
set -eu
cd "$FAKE_SLURM"

task() {  # JOB TASK SCRIPT: run it until it ends without having been requeued
  export SLURM_JOB_ID="$1" SLURM_ARRAY_JOB_ID="$1" SLURM_ARRAY_TASK_ID="$2" SLURM_RESTART_COUNT=0
  while true; do
    rm -f "$1_$2.requeue"
    echo RUNNING >"$1_$2.state"
    bash "$3" >>"$1_$2.out" 2>&1 &
    echo $! >"$1_$2.pid"
    wait $! && code=0 || code=$?
    echo "$code" >>"$1_$2.codes"
    [ -f "$1_$2.requeue" ] || break
    SLURM_RESTART_COUNT=$((SLURM_RESTART_COUNT + 1))
  done
  echo COMPLETED >"$1_$2.state"
}

job() {  # JOB SCRIPT DEPENDENCY: all tasks at a time, once the jobs before have ended
  for before in $(echo "$3" | tr ':' ' ' | sed 's/^afterany//'); do
    while [ ! -f "$before.done" ]; do sleep 0.05; done
  done
  last=$(sed -n 's/^#SBATCH --array=0-\([0-9]*\).*/\1/p' "$2")
  for i in $(seq 0 "${last:-0}"); do task "$1" "$i" "$2" & done
  wait
  touch "$1.done"
}

case "${0##*/}" in
sbatch)
  dependency=
  for word in "$@"; do
    case "$word" in
    --dependency=*) dependency="${word#*=}" ;;
    --parsable) ;;
    *) script="$word" ;;
    esac
  done
  number=$(($(find . -name '*.asked' | wc -l) + 1))
  printf '%s\n' "$*" >"$number.asked"
  job "$number" "$script" "$dependency" >>"$number.log" 2>&1 &
  echo "$number"
  ;;
scontrol) touch "$2.requeue" ;;
squeue) for word in "$@"; do case "$word" in --jobs=*) cat "${word#*=}.state" ;; esac; done ;;
scancel) xargs -r kill -TERM <"${!#}/pids" ;; # JOB_TASK.STEP
srun)
  size=1 number=0 job="${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID"
  while [ "${1#--}" != "$1" ]; do
    case "$1" in --ntasks=*) size="${1#*=}" ;; esac
    shift
  done
  printf '%s\n' "$size" "$@" >>srun.log
  until mkdir "$job.$number" 2>/dev/null; do number=$((number + 1)); done
  pids="$FAKE_SLURM/$job.$number/pids"
  trap 'xargs -r kill -KILL <"$pids"; exit 143' TERM # srun ends its tasks at once
  cd "$OLDPWD"
  export SLURM_NTASKS="$size" SLURM_STEP_ID="$number" SLURM_JOB_NODELIST=localhost SLURM_STEP_NODELIST=localhost
  export SLURM_NODEID=0
  for rank in $(seq 0 $((size - 1))); do
    SLURM_PROCID="$rank" SLURM_LOCALID="$rank" "$@" &
    echo $! >>"$pids"
  done
  code=0
  for rank in $(xargs <"$pids"); do wait "$rank" || code=$?; done
  exit "$code"
  ;;
esac
