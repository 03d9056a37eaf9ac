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

// Why work goes on, and what would have committed it; null: no work does.
struct Uncommitted {
  const char *why = nullptr, *missing = nullptr;
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

  // Work of `lane` that reaches `address` and goes on behind a wait, as it has not been committed.
  virtual Uncommitted uncommitted([[maybe_unused]] const Lane& lane,
                                  [[maybe_unused]] uintptr_t address) {
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
