#include "common/harness/runner.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <random>
#include <ratio>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "common/harness/changes.h"
#include "common/harness/fp8.h"
#include "common/harness/gradients.h"
#include "common/launch/gradients.h"
#include "common/launch/launch.h"
#include "common/launch/validation.h"

namespace fa {
namespace {

// Under load: long enough for the driver's readings of clock and power, which come every few
// milliseconds.
constexpr double kSecondsTimedUnderLoad = 0.5;
constexpr int kMostTimedUnderLoad = 4096;

// Which of `count` kernels is the i-th in a round: there and back in two rounds, and the beginnings
// of such pairs lie all over the list.
int place_in_round(int i, int round, int rounds, int count) {
  const int pair = round / 2, pairs = (rounds + 1) / 2;
  const int first = pairs <= count ? count * pair / pairs : pair % count;
  return (first + (round % 2 ? count - 1 - i : i)) % count;
}

void sleep_ms(double milliseconds) {
  std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(milliseconds));
}

// The median of one field, over the samples where it is known.
template <typename Sample, typename Field>
std::optional<double> median(const std::vector<Sample>& samples, Field Sample::*field) {
  std::vector<double> values;
  for (const Sample& sample : samples) {
    if (const std::optional<double> value = sample.*field) values.push_back(*value);
  }
  return values.empty() ? std::nullopt : std::optional<double>(summarise(values).median);
}

// Runs body, which sets the record's comparison, and sets the status.
template <typename Body>
void judge(Record& record, const Body& body) {
  const auto failed = [&](Status status, const std::exception& error) {
    record.status = status;
    record.reason = error.what();
    record.comparison.reset();
  };
  try {
    body();
    record.status = record.comparison->passed ? Status::kPassed : Status::kWrong;
    record.reason = record.comparison->reason;
  } catch (const Unsupported& error) {
    failed(Status::kSkipped, error);
  } catch (const BackendError& error) {
    failed(Status::kError, error);
  } catch (const WrongLaunch& error) {
    // The comparison stays: that of the launch that was verified.
    record.status = Status::kWrong;
    record.reason = error.what();
  }
}

// Whether some element is a NaN that was computed: what was never written is poison.
bool has_computed_nan(Dtype dtype, const std::vector<uint16_t>& output,
                      const std::vector<float>& lse) {
  const uint16_t infinity = dtype == Dtype::kFp16 ? 0x7c00 : 0x7f80;
  return std::any_of(output.begin(), output.end(),
                     [&](uint16_t each) { return (each & 0x7fff) > infinity && each != 0xffff; }) ||
         std::any_of(lse.begin(), lse.end(), [](float each) {
           return each != each && std::bit_cast<uint32_t>(each) != 0xffffffffu;
         });
}

// A number that no kernel can foresee, not 0.
uint64_t unforeseen() {
  std::random_device source;
  return uint64_t(source()) << 32 | source() | 1;
}

}  // namespace

const char* name_of(Status status) {
  constexpr const char* kNames[] = {"passed", "wrong", "skipped", "error"};
  return kNames[size_t(status)];
}

Times summarise(std::vector<double> milliseconds) {
  std::sort(milliseconds.begin(), milliseconds.end());
  // Quantiles by linear interpolation between the two nearest launches.
  auto quantile = [&](double q) {
    const double at = q * double(milliseconds.size() - 1);
    const size_t below = size_t(at), above = std::min(below + 1, milliseconds.size() - 1);
    return milliseconds[below] + (at - double(below)) * (milliseconds[above] - milliseconds[below]);
  };
  if (milliseconds.empty()) return {};
  Times times;
  times.median = quantile(0.5);
  times.p10 = quantile(0.1);
  times.p90 = quantile(0.9);
  times.min = milliseconds.front();
  times.launches = int(milliseconds.size());
  return times;
}

Times merge(const std::vector<Times>& rounds) {
  Times result = rounds.front();
  for (const Times& round : rounds) {
    result.min = std::min(result.min, round.min);
    result.launches = std::min(result.launches, round.launches);
  }
  result.median = *median(rounds, &Times::median);
  result.p10 = *median(rounds, &Times::p10);
  result.p90 = *median(rounds, &Times::p90);
  result.clock_mhz = median(rounds, &Times::clock_mhz);
  result.power_w = median(rounds, &Times::power_w);
  result.rounding = median(rounds, &Times::rounding);
  return result;
}

Runner::Runner(const Problem& problem, const Inputs& inputs, const Protocol& protocol,
               int reference_rows_per_head)
    : problem_(problem),
      protocol_(protocol),
      heads_(head_rows(problem)),
      original_q_("Q", problem.tensor_bytes()),
      original_k_("K", problem.kv_tensor_bytes()),
      original_v_("V", problem.kv_tensor_bytes()) {
  const size_t bytes = problem.tensor_bytes(), kv_bytes = problem.kv_tensor_bytes();
  Pool pool;
  if (problem.page_size > 0) {
    pool = make_pool(problem, inputs, protocol.seed);
    block_table_.emplace("block_table", pool.block_table.size() * sizeof(int))
        .upload(pool.block_table.data());
    original_table_.emplace("block_table", block_table_->size()).upload(pool.block_table.data());
    kv_lens_.emplace("kv_lens", problem.kv_lens.size() * sizeof(int))
        .upload(problem.kv_lens.data());
  }
  const auto upload = [&](Buffer& q, Buffer& k, Buffer& v) {
    q.upload(inputs.q.data());
    k.upload(block_table_ ? pool.k.data() : inputs.k.data());
    v.upload(block_table_ ? pool.v.data() : inputs.v.data());
  };
  upload(original_q_, original_k_, original_v_);
  Fp8Inputs rounded;
  if (problem.fp8 != Fp8::kNone) {
    rounded = round_to_fp8(problem, inputs);
    const Inputs narrow = in_16_bits(problem, rounded);
    for (const auto& [name, tensor] :
         {std::pair("Q", &narrow.q), {"K", &narrow.k}, {"V", &narrow.v}}) {
      fp8_.emplace_back(name, tensor->size() * 2).upload(tensor->data());
    }
  }
  for (int i = 0; i < std::max(1, protocol.rotating_inputs); i++) {
    sets_.push_back({Buffer("Q", bytes), Buffer("K", kv_bytes), Buffer("V", kv_bytes),
                     Buffer("O", bytes), Buffer("lse", problem.row_count() * sizeof(float))});
    upload(sets_.back().q, sets_.back().k, sets_.back().v);
  }
  if (!problem.packed.empty()) {
    std::vector<int> q(1, 0), kv(1, 0);
    for (const Sequence& each : problem.packed) {
      q.push_back(q.back() + each.q_len);
      kv.push_back(kv.back() + each.kv_len);
    }
    cu_seqlens_q_.emplace("cu_seqlens_q", q.size() * sizeof(int)).upload(q.data());
    cu_seqlens_kv_.emplace("cu_seqlens_kv", kv.size() * sizeof(int)).upload(kv.data());
  }
  of_heads_.sinks = inputs.sinks;
  of_heads_.alibi_slopes = inputs.alibi_slopes;
  const auto upload_floats = [](std::optional<Buffer>& to, const char* name,
                                const std::vector<float>& floats) {
    if (!floats.empty()) to.emplace(name, floats.size() * sizeof(float)).upload(floats.data());
  };
  upload_floats(sinks_, "sinks", inputs.sinks);
  upload_floats(alibi_slopes_, "alibi_slopes", inputs.alibi_slopes);
  if (protocol.flush_l2 && on_gpu()) l2_.emplace("L2 flush", size_t(256) << 20);
  reference_ = make_reference(problem, inputs, reference_rows_per_head,
                              problem.fp8 != Fp8::kNone ? &rounded : nullptr);
}

Tensors Runner::tensors(const Kernel& kernel, int set) {
  const Set& chosen = sets_[size_t(set)];
  Tensors result{chosen.q.data(), chosen.k.data(), chosen.v.data(), chosen.o.data()};
  result.stream = work_stream();
  if (kernel.takes.lse) result.lse = static_cast<float*>(chosen.lse.data());
  if (cu_seqlens_q_) {
    result.cu_seqlens_q = static_cast<const int*>(cu_seqlens_q_->data());
    result.cu_seqlens_kv = static_cast<const int*>(cu_seqlens_kv_->data());
  }
  if (block_table_) {
    result.block_table = static_cast<const int*>(block_table_->data());
    result.kv_lens = static_cast<const int*>(kv_lens_->data());
  }
  if (sinks_) result.sinks = static_cast<const float*>(sinks_->data());
  if (alibi_slopes_) result.alibi_slopes = static_cast<const float*>(alibi_slopes_->data());
  if (!kernel.workspace_bytes) return result;
  const size_t needed = kernel.workspace_bytes(problem_, protocol_.workspace_limit);
  if (needed > protocol_.workspace_limit) {
    result.workspace_bytes = protocol_.workspace_limit;  // refused by run(), which says so
    return result;
  }
  if (!workspace_ || workspace_->size() != needed) {
    workspace_.reset();  // first, so that both need not fit
    workspace_.emplace("workspace", needed);
    workspace_of_.clear();
  }
  if (kernel.zeroed_bytes && workspace_of_ != kernel.name) {
    workspace_->zero(kernel.zeroed_bytes());
  }
  workspace_of_ = kernel.name;
  result.workspace = workspace_->data();
  result.workspace_bytes = needed;
  return result;
}

Originals Runner::originals() const {
  const auto eights = [](const Buffer& of) { return static_cast<const Eight*>(of.data()); };
  return {eights(original_q_), eights(original_k_), eights(original_v_),
          original_q_.size() / sizeof(Eight), original_k_.size() / sizeof(Eight),
          // Other signs of K are other numbers of a rotated K, which would be rounded otherwise.
          protocol_.inputs == "normal" && problem_.fp8 != Fp8::kRotated};
}

Originals Runner::to_check() const {
  Originals result = originals();
  if (fp8_.empty()) return result;
  result.q = static_cast<const Eight*>(fp8_[0].data());
  result.k = static_cast<const Eight*>(fp8_[1].data());
  result.v = static_cast<const Eight*>(fp8_[2].data());
  return result;
}

void Runner::change(int set, uint64_t nonce) {
  const Set& chosen = sets_[size_t(set)];
  const auto eights = [](const Buffer& of) { return static_cast<Eight*>(of.data()); };
  change_inputs(originals(), nonce, eights(chosen.q), eights(chosen.k), eights(chosen.v));
}

OutputRows Runner::output_rows(const Kernel& kernel, int set) {
  if (kernel.output) return kernel.output(tensors(kernel, set));
  const void* const lse = kernel.takes.lse ? sets_[size_t(set)].lse.data() : nullptr;
  return {sets_[size_t(set)].o.data(), problem_.strides(), static_cast<const float*>(lse)};
}

void Runner::check(const Kernel& kernel, int set, Record& record) {
  if (record.ceiling) {
    record.comparison = record.ceiling->verify(problem_);
    return;
  }
  record.output.resize(problem_.element_count());
  std::vector<float> lse(kernel.takes.lse && !kernel.output ? problem_.row_count() : 0);
  if (!kernel.output) {
    // The emulator sees here what was written beside them.
    sets_[size_t(set)].o.download(record.output.data());
    if (!lse.empty()) sets_[size_t(set)].lse.download(lse.data());
  } else {
    if (!gathered_) gathered_.emplace("the gathered output", problem_.tensor_bytes());
    gather_output(problem_, output_rows(kernel, set), static_cast<Eight*>(gathered_->data()));
    synchronize();
    gathered_->download(record.output.data());
  }
  record.comparison = compare(problem_, reference_, record.output, lse, kernel.own_rounding);
  if (record.comparison->passed || !has_computed_nan(problem_.dtype, record.output, lse)) return;
  if (const std::string where = first_nan(); !where.empty()) {
    record.comparison->reason += "\n  " + where;
  }
}

void Runner::launch(const Kernel& kernel, int set, Parts parts) {
  const Tensors given = tensors(kernel, set);
  workspace_of_.clear();  // after a launch that throws, the workspace may hold anything
  parts(kernel, problem_, given);
  workspace_of_ = kernel.name;
}

Times Runner::time(const Kernel& kernel, const Timing& timing) {
  if (!on_gpu()) throw BackendError("the emulator does not measure time");
  const int set_count = int(sets_.size());
  const bool checked = !kernel.ceiling && problem_.row_count() > 0;
  sample_gpu();  // the first sample takes long: NVML starts
  // How long does a launch take? Slow kernels get fewer.
  const double budget = timing.max_seconds * 1000;
  EventTimer timer;
  double spent = 0;
  int warmed = 0;
  tensors(kernel, 0);  // makes the workspace, which takes time
  for (; warmed < 1 || (warmed < timing.warmup && spent < budget / 4); warmed++) {
    timer.start();
    launch(kernel, warmed % set_count);
    timer.stop();
    spent += timer.milliseconds();
  }
  const int in_a_row = std::max(1, timing.in_a_row);
  const int planned =
      int(std::clamp(budget / (spent / warmed * in_a_row), 1.0, double(timing.iterations)));

  LaunchGraph warm_up([&] {
    for (int i = 0; i < warmed; i++) launch(kernel, i % set_count);
  });
  std::vector<EventTimer> timers{size_t(planned)};
  // Rounding is timed where it is ours; what a library's costs is PyTorch's affair. As in a model,
  // Q, K and V have just been written.
  std::vector<EventTimer> of_rounding{size_t(kernel.prepare && !kernel.library ? planned : 0)};
  const std::vector<Found> nothing(timers.size());
  Buffer found("what is found in outputs", nothing.size() * sizeof nothing[0]);
  found.upload(nothing.data());
  std::vector<uint64_t> nonces;
  std::vector<CheckedRow> rows;  // of each launch
  for (int i = 0; i < planned; i++) {
    nonces.push_back(unforeseen());
    const auto chosen = rows_to_check(problem_, heads_, of_heads_, nonces.back());
    rows.insert(rows.end(), chosen.begin(), chosen.end());
  }
  Buffer checked_rows("the rows to check", rows.size() * sizeof rows[0]);
  checked_rows.upload(rows.data());
  Buffer parts("parts of checked rows",
               part_floats(kRowsChecked, problem_.head_dim) * sizeof(float));
  OutputCheck check{to_check(), problem_};
  if (original_table_) check.block_table = static_cast<const int*>(original_table_->data());
  check.parts = static_cast<float*>(parts.data());
  check.own_rounding = kernel.own_rounding;
  LaunchGraph timed([&] {
    for (int i = 0; i < planned; i++) {
      const int set = i % set_count;
      if (checked) {
        change(set, nonces[size_t(i)]);
        poison(kernel, set);
      }
      if (!of_rounding.empty()) of_rounding[size_t(i)].start();
      prepare(kernel, problem_, tensors(kernel, set));
      if (!of_rounding.empty()) of_rounding[size_t(i)].stop();
      if (l2_) l2_->poison();
      timers[size_t(i)].start();
      for (int nth = 0; nth < in_a_row; nth++) launch(kernel, set, &run_prepared);
      timers[size_t(i)].stop();
      if (!checked) continue;
      check.rows = static_cast<const CheckedRow*>(checked_rows.data()) + i * kRowsChecked;
      check_output(check, nonces[size_t(i)], output_rows(kernel, set),
                   static_cast<Found*>(found.data()) + i);
    }
  });
  synchronize();
  if (timing.rest_ms > 0) sleep_ms(timing.rest_ms);
  // All is queued at once, so that the GPU never idles from here on, as in real use.
  EventTimer loaded, end;
  loaded.start();
  const int repetitions = 1 + int(timing.load_ms / spent);
  for (int i = 0; i < repetitions; i++) warm_up.launch();
  loaded.stop();
  timed.launch();
  end.start();
  end.stop();
  while (!loaded.done()) sleep_ms(0.2);
  std::vector<GpuState> samples = {sample_gpu()};
  while (!end.done()) {
    sleep_ms(2);
    if (!end.done()) samples.push_back(sample_gpu());
  }
  const auto read = [](std::vector<EventTimer>& from) {
    std::vector<double> milliseconds;
    milliseconds.reserve(from.size());
    for (EventTimer& each : from) milliseconds.push_back(each.milliseconds());
    return milliseconds;
  };
  std::vector<double> of_launches = read(timers);
  for (double& each : of_launches) each /= in_a_row;
  Times times = summarise(std::move(of_launches));
  if (!of_rounding.empty()) times.rounding = summarise(read(of_rounding)).median;
  synchronize();
  std::vector<Found> all(nothing.size());
  found.download(all.data());
  for (size_t i = 0; i < all.size(); i++) {
    const std::string where =
        "timed launch " + std::to_string(i + 1) + " of " + std::to_string(planned) + ": ";
    if (all[i].wrong_rows > 0) {
      throw WrongLaunch(where + std::to_string(all[i].wrong_rows) + " of " +
                        std::to_string(kRowsChecked) +
                        " rows of O that were computed again are not what its inputs give");
    }
    if (all[i].not_a_number > 0) {
      throw WrongLaunch(where + "O was never written or is not finite in " +
                        std::to_string(all[i].not_a_number) + " places of eight elements");
    }
  }
  times.clock_mhz = median(samples, &GpuState::clock_mhz);
  times.power_w = median(samples, &GpuState::power_w);
  return times;
}

Record Runner::verify(const Kernel& kernel) {
  Record record;
  record.kernel = kernel.name;
  record.problem = problem_;
  record.ceiling = kernel.ceiling;
  judge(record, [&] {
    if (const std::string why = refusal(kernel, problem_); !why.empty()) throw Unsupported(why);
    for (int set = 0; set < int(sets_.size()); set++) {
      if (on_gpu()) change(set, 0);  // as they were made
      poison(kernel, set);
    }
    launch_record() = LaunchRecord{};
    take_counts();  // of launches before
    forget_nans();
    if (kernel.library) record.library = kernel.library();
    for (int set = 0; set < int(sets_.size()); set++) {
      launch(kernel, set);
      synchronize();
      if (set == 0) {
        record.registers = launch_record().registers;
        record.shared_bytes = launch_record().shared_bytes;
        record.local_bytes = launch_record().local_bytes;
        record.workspace_bytes = kernel.workspace_bytes ? workspace_->size() : 0;
        record.counts = take_counts();
      }
      check(kernel, set, record);
      if (!record.comparison->passed) return;
    }
  });
  return record;
}

Record Runner::verify(const GradientKernel& gradients, const Inputs& inputs) {
  const Kernel& kernel = gradients.kernel;
  const std::vector<uint16_t> random = make_inputs(problem_, "normal", protocol_.seed + 1).q;
  const GradientReference reference = make_gradient_reference(problem_, inputs, random);
  Buffer d_o("dO", problem_.tensor_bytes()), d_q("dQ", problem_.tensor_bytes()),
      d_k("dK", problem_.kv_tensor_bytes()), d_v("dV", problem_.kv_tensor_bytes());
  d_o.upload(random.data());
  Record record;
  record.kernel = kernel.name;
  record.problem = problem_;
  judge(record, [&] {
    if (const std::string why = refusal(kernel, problem_); !why.empty()) throw Unsupported(why);
    take_counts();  // of launches before
    for (int set = 0; set < int(sets_.size()); set++) {
      sets_[size_t(set)].o.upload(reference.o.data());
      sets_[size_t(set)].lse.upload(reference.lse.data());
      for (Buffer* const each : {&d_q, &d_k, &d_v}) each->poison();
      fa::run(gradients, problem_,
              {tensors(kernel, set), d_o.data(), d_q.data(), d_k.data(), d_v.data()});
      synchronize();
      if (set == 0) record.counts = take_counts();
      Comparison& comparison = record.comparison.emplace();
      for (const auto& [name, right, buffer] : {std::tuple("dQ", &reference.d_q, &d_q),
                                                {"dK", &reference.d_k, &d_k},
                                                {"dV", &reference.d_v, &d_v}}) {
        std::vector<uint16_t> actual(buffer->size() / 2);
        buffer->download(actual.data());
        double rel = 0;
        const std::string wrong = compare_gradient(problem_, name, *right, actual, &rel);
        comparison.rel = std::isnan(rel) ? rel : std::max(comparison.rel, rel);
        if (comparison.reason.empty()) comparison.reason = wrong;
      }
      comparison.passed = comparison.reason.empty();
      if (!comparison.passed) return;
    }
  });
  return record;
}

void Runner::add_round(const Kernel& kernel, Record& record, bool under_load) {
  if (record.status != Status::kPassed) return;
  Timing timing = protocol_;
  if (under_load) {
    timing.rest_ms = 0;
    timing.load_ms = protocol_.load_seconds * 1000;
    timing.max_seconds = kSecondsTimedUnderLoad;
    timing.iterations = kMostTimedUnderLoad;
  }
  auto& rounds = under_load ? record.loaded_rounds : record.rounds;
  judge(record, [&] { rounds.push_back(time(kernel, timing)); });
  if (record.status == Status::kPassed) {
    (under_load ? record.loaded : record.times) = merge(rounds);
  } else {
    record.rounds.clear();
    record.loaded_rounds.clear();
    record.times.reset();
    record.loaded.reset();
  }
}

Record Runner::run(const Kernel& kernel) {
  Record record = verify(kernel);
  if (on_gpu()) add_round(kernel, record);
  return record;
}

std::vector<Record> measure(Runner& runner, const std::vector<const Kernel*>& chosen,
                            const Protocol& protocol, const Say& say) {
  const int count = int(chosen.size()), rounds = on_gpu() ? protocol.rounds : 0;
  const int loaded_rounds = on_gpu() && protocol.load_seconds > 0 ? 2 : 0;
  const int steps = count * (1 + rounds + loaded_rounds);
  int done = 0;
  std::vector<Record> records;
  auto forget = [&] {  // outputs take much memory
    for (size_t i = 0; i + 1 < records.size(); i++) records[i].output = std::vector<uint16_t>();
  };
  for (const Kernel* kernel : chosen) {
    say("verifying " + kernel->name, done++, steps);
    records.push_back(runner.verify(*kernel));
    forget();
  }
  const auto time_all = [&](int of, bool under_load) {
    const std::string what = under_load ? " under load" : "";
    for (int round = 0; round < of; round++) {
      for (int i = 0; i < count; i++) {
        const int at = place_in_round(i, round, of, count);
        const size_t index = size_t(at);
        say("timing " + chosen[index]->name + what + ", round " + std::to_string(round + 1) +
                " of " + std::to_string(of),
            done++, steps);
        runner.add_round(*chosen[index], records[index], under_load);
        forget();
      }
    }
  };
  time_all(rounds, false);
  time_all(loaded_rounds, true);
  return records;
}

}  // namespace fa
