// Why copies that a thread has started, and commits and awaits in groups, may still be under way:
// for reports.
#pragma once

#include <cstdint>
#include <string>

#include "common/emulator/core/lane.h"
#include "common/emulator/core/unit.h"

namespace emu {

// The last wait of a thread.
struct GroupWait {
  SourceLocation where;
  uint64_t number = 0;     // of its waits so far; 0: there was none
  uint64_t committed = 0;  // groups by then
  uint64_t left = 0;       // groups that it leaves under way
  bool read = false;       // it waits until the copies have read, and no longer
};

// A copy, as that wait sees it.
struct AwaitedCopy {
  uint64_t waits_before = 0;  // that its thread had executed
  uint64_t group = 0;         // from 1; 0: it has not been committed
  SourceLocation committed;
  bool writes = true;  // a wait until it has read is not enough
};

// `state`: "The copy may still be under way". `wait`, `commit`: the names of both wrappers. `own`:
// the thread that has started the copy is the one that should have waited.
inline Cause cause_of_group(const std::string& state, const GroupWait& last,
                            const AwaitedCopy& copy, const std::string& wait,
                            const std::string& commit, bool own) {
  const std::string then = own ? "," : ", then a barrier,";
  const std::string the_wait = ": the wait at " + place(last.where);
  if (last.number == copy.waits_before) {
    return {state + ": nobody has waited for it",
            wait + (own ? "" : " in the thread that copies" + then)};
  }
  if (copy.group == 0) {
    return {state + ", because a wait covers what has been committed",
            commit + " before the wait,"};
  }
  if (copy.group > last.committed) {
    return {state + the_wait + " came before the commit at " + place(copy.committed) +
                ", and covers only what had been committed",
            wait + " behind the commit" + then};
  }
  if (copy.group + last.left > last.committed) {
    return {state + the_wait + " leaves " + std::to_string(last.left) +
                (last.left == 1 ? " group" : " groups") +
                " under way, and this copy's is one of them",
            wait + "<" + std::to_string(last.committed - copy.group) + "> there" + then};
  }
  if (last.read && copy.writes) {
    return {state + the_wait + " waits until it has read, and not until it has written",
            wait + " there" + then};
  }
  return {
      state + ", as far as this thread knows: its own thread has waited, at " + place(last.where),
      "a barrier behind that wait,"};
}

}  // namespace emu
