// A unit: a family of instructions (units/) with a state of its own and with something to do when
// clusters, CTAs and threads begin or end. The core calls every unit that a program links, and
// knows none of them.
//
// A unit registers itself by a variable in its source, through which its instructions find their
// state:
//
//   class Copies : public Unit { ... explicit Copies(Cluster& cluster); ... };
//   const UnitOf<Copies> copies{20};
//   ... copies(*current_lane->cta->cluster).groups ...
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/emulator/core/lane.h"  // IWYU pragma: export

namespace emu {

enum class Engine : uint8_t;

// What a thread has started, and runs beside it. `own`: it is that thread which did not wait.
struct UnderWay {
  const Lane& starter;
  const Engine* engine;  // null: a cp.async
  bool own;
};

// Why nothing orders two accesses, and what is missing; "": the unit does not know.
struct Cause {
  std::string why, missing;
};

// What the threads of two accesses have done at a unit's barriers, if the second's last barrier was
// one of them.
struct Order {
  uint32_t when = 0;      // the second thread's clock behind that barrier; 0: there was none
  std::string why = "";   // what is wrong with it, if something is
  std::string cure = "";  // a sentence; "": why says it
  SourceLocation where;   // of the second thread
  bool sure = false;      // it explains the race; otherwise perhaps
  bool too_many = false;  // an arrival too many does
};

// There is one object of each unit for each cluster that runs at the same time; an OS thread uses
// it again for the next cluster.
class Unit {
 public:
  Unit() = default;
  virtual ~Unit() = default;
  Unit(const Unit&) = delete;
  Unit& operator=(const Unit&) = delete;

  // Another cluster begins: the unit forgets the one before.
  virtual void begin() {}

  // Under random completion only: `me` stops running for a while, and work under way may end now.
  // `waits` is false where `me` could go on, or has come to its end.
  virtual void step([[maybe_unused]] Lane& me, [[maybe_unused]] bool waits) {}

  // No lane can run. The unit ends one piece of work that a lane waits for; false: it has none.
  virtual bool finish_awaited() { return false; }

  // A lane has asked in vain for what is at `address`: the unit may end one piece of work that
  // reports there.
  virtual void polled([[maybe_unused]] uintptr_t address) {}

  // Why work that reaches `address` may still be under way.
  virtual Cause why_under_way([[maybe_unused]] const UnderWay& work,
                              [[maybe_unused]] uintptr_t address) {
    return {};
  }

  // Why what `first` did need not come before what `second` does.
  virtual Order order([[maybe_unused]] const Lane& first, [[maybe_unused]] const Lane& second) {
    return {};
  }

  // The kernel's body has ended for `me`, which still counts among the live lanes.
  virtual void thread_ends([[maybe_unused]] Lane& me) {}

  // `me` has left the live lanes. With cta.live == 0 its CTA has ended.
  virtual void thread_has_ended([[maybe_unused]] Lane& me) {}

  // All CTAs of the cluster have ended. What is wrong with this one is returned as a text; "" if
  // nothing is.
  virtual std::string complaint([[maybe_unused]] const Cta& cta) { return ""; }
};

namespace detail {
// Returns where the unit is in Cluster::units.
size_t register_unit(int order, std::unique_ptr<Unit> (*make)(Cluster&));
}  // namespace detail

// A registered unit; called with a cluster, it returns that cluster's object. Units are called by
// `order`, the lowest first, so that of two that could complain at one moment it is always the same
// one.
template <typename U>
class UnitOf {
 public:
  explicit UnitOf(int order)
      : index_(detail::register_unit(order, [](Cluster& cluster) -> std::unique_ptr<Unit> {
          return std::make_unique<U>(cluster);
        })) {}
  U& operator()(const Cluster& cluster) const { return static_cast<U&>(*cluster.units[index_]); }
  U& operator()() const { return (*this)(*current_lane->cta->cluster); }

 private:
  const size_t index_;
};

}  // namespace emu
