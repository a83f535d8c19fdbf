# Words for the scripts of surroundings.toml. A script that ends with code 77 cannot be tried here, and says why.
set -u
lacks() { echo "$1"; exit 77; }
tune() { autosched tune "$@" $OPTIONS; }
as() {  # USER COMMAND: it may read, but not write, what only others may read, such as this project in root's home
  local user=$1; shift
  setpriv --reuid "$user" --regid "$user" --clear-groups --inh-caps +dac_read_search --ambient-caps +dac_read_search "$@"
}
devices() { "$@" autosched devices 2>/dev/null | grep -i quarantine; "$@" autosched stop >/dev/null 2>&1; }
tune_as() { as "$1" autosched tune net.onnx $OPTIONS; code=$?; devices as "$1"; exit $code; }
until_said() {  # FILE WORDS
  for _ in $(seq 1000); do grep -q -- "$2" "$1" 2>/dev/null && return; sleep 0.1; done
  echo "not within 100 s: $2"; tail -5 "$1"; exit 1
}
tune_long() { autosched tune net.onnx $LONG; }
ended() { wait $!; code=$?; cat said; devices; exit $code; }
group() {  # CONTROLLER: enters a control group of its own, and sets $group
  if [ -w /sys/fs/cgroup/cgroup.subtree_control ]; then
    echo "+$1" > /sys/fs/cgroup/cgroup.subtree_control || lacks "the control group $1 is not delegated"
    group=/sys/fs/cgroup/$GROUP
  elif [ -w /sys/fs/cgroup/$1 ]; then group=/sys/fs/cgroup/$1/$GROUP
  else lacks "no control group $1 that root may write"; fi
  mkdir -p "$group"
  if [ -e "$group/cpuset.mems" ]; then cat "$group/../cpuset.mems" > "$group/cpuset.mems"; cat "$group/../cpuset.cpus" > "$group/cpuset.cpus"; fi
}
enter() { echo $$ > "$group/cgroup.procs"; }
quota() {  # PERCENT
  group cpu
  if [ -e "$group/cpu.max" ]; then echo "$(($1 * 1000)) 100000" > "$group/cpu.max"
  else echo 100000 > "$group/cpu.cfs_period_us"; echo "$(($1 * 1000))" > "$group/cpu.cfs_quota_us"; fi
  enter
}
memory() {  # BYTES
  group memory
  if [ -e "$group/memory.max" ]; then echo "$1" > "$group/memory.max"; else echo "$1" > "$group/memory.limit_in_bytes"; fi
  enter
}
scripts() { for name in $2; do
  echo 'open("'"$1"'/executed", "w").close(); raise SystemExit("a file of the user was executed")' > "$1/$name.py"; done; }
cp "$MODEL" net.onnx
