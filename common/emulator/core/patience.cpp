#include "common/emulator/core/patience.h"

#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <mutex>
#include <string>

#include "common/emulator/core/describe.h"
#include "common/emulator/core/launch.h"
#include "common/emulator/core/memory.h"

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

namespace emu {
namespace {

constexpr int kSignal = SIGVTALRM;
constexpr int kTicks = 4;  // within the time that a launch has

thread_local Patience* of_this_thread = nullptr;
thread_local uintptr_t interrupted_at = 0;  // the instruction

std::string limit() {
  char text[64];
  snprintf(text, sizeof text, "%g s of processor time (--patience)", options().patience);
  return text;
}

// Where an interrupted lane goes on. Its registers are lost, so it can only be abandoned; the
// emulator, which it did not call, is in order.
[[noreturn]] void interrupted() { abandon_interrupted(without_a_word(interrupted_at)); }

// Has the interrupted thread go on in interrupted(), on its own stack, as if that had been called.
void redirect(void* context) {
  auto* const state = static_cast<ucontext_t*>(context);
#if defined(__x86_64__)
  constexpr greg_t kRedZone = 128;  // below the stack pointer; the callee expects 16 n + 8
  greg_t* const registers = state->uc_mcontext.gregs;
  registers[REG_RSP] = ((registers[REG_RSP] - kRedZone) & ~greg_t{15}) - 8;
  registers[REG_RIP] = greg_t(uintptr_t(&interrupted));
#elif defined(__aarch64__)
  state->uc_mcontext.sp &= ~uint64_t{15};
  state->uc_mcontext.pc = uintptr_t(&interrupted);
#endif
}

void on_tick(int, siginfo_t* info, void* context) {
  Patience* const mine = of_this_thread;
  if (info->si_code == SI_TIMER && info->si_value.sival_ptr == mine && mine) mine->tick(context);
}

}  // namespace

Patience::Patience(Machine& machine) : machine_(machine) {
  if (options().patience <= 0) return;
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction action {};
    action.sa_sigaction = on_tick;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
    sigaction(kSignal, &action, nullptr);
  });
  of_this_thread = this;
  sigevent event{};
  event.sigev_notify = SIGEV_THREAD_ID;
  event.sigev_signo = kSignal;
  event.sigev_value.sival_ptr = this;
  event.sigev_notify_thread_id = pid_t(syscall(SYS_gettid));
  if (timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &timer_) != 0) return;
  started_ = true;
  const double seconds = options().patience / kTicks;
  itimerspec period{};
  period.it_interval.tv_sec = time_t(seconds);
  period.it_interval.tv_nsec = long((seconds - double(period.it_interval.tv_sec)) * 1e9) + 1;
  period.it_value = period.it_interval;
  timer_settime(timer_, 0, &period, nullptr);
}

Patience::~Patience() {
  if (started_) timer_delete(timer_);
  of_this_thread = nullptr;
  machine_.overdue = false;
}

void Patience::tick(void* context) {
  if (!current_lane || machine_.progress != progress_) {
    progress_ = machine_.progress;
    ticks_ = 0;
    machine_.overdue = false;
    return;
  }
  // A lane that asks is given a tick to do so: it ends by itself, in order.
  ticks_++;
  machine_.overdue = ticks_ >= kTicks;
  if (ticks_ <= kTicks) return;
  interrupted_at = program_counter_of(context);
  redirect(context);
  ticks_ = 0;
}

std::string without_a_word(uintptr_t instruction) {
  return symbolise(instruction) + ": has run without a word to the other threads for " + limit() +
         "\n  A loop without end? A count or an index in its condition may be wrong. Or it waits "
         "for "
         "memory that another\n  thread is to write: threads take turns where they meet, so none "
         "can "
         "(nor need it on a GPU).";
}

void end_of_patience() {
  const Cta& cta = *current_lane->cta;
  fail_cta("no thread has got anywhere for " + limit() +
           ": those that can run only ask for what does not come" + describe_all(*cta.cluster));
}

}  // namespace emu
