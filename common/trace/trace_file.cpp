#include "common/trace/trace_file.h"
#include "common/harness/sources.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/harness/json.h"
#include "common/trace/timing.h"

namespace fa {

namespace {

std::string trace_json(const emu::Timeline& timeline, const Json& about) {
  std::string text = "{\"traceEvents\": [\n";
  const auto add = [&](const Json& event) { text += event.dump() + ",\n"; };

  // Rows: a process a group, numbered in their order.
  std::vector<std::pair<int, int>> ids;  // of each track: process, thread
  for (const emu::Track& track : timeline.tracks) {
    const bool first = ids.empty() || timeline.tracks[ids.size() - 1].group != track.group;
    const int process = ids.empty() ? 1 : ids.back().first + first;
    const int thread = first ? 1 : ids.back().second + 1;
    ids.emplace_back(process, thread);
    const auto name = [&](const char* what, const char* key, const Json& value) {
      add({{"ph", "M"},
           {"pid", process},
           {"tid", thread},
           {"name", what},
           {"args", {{key, value}}}});
    };
    if (first) {
      name("process_name", "name", track.group);
      name("process_sort_index", "sort_index", process);
    }
    name("thread_name", "name", track.name);
    name("thread_sort_index", "sort_index", thread);
  }

  const std::string own = "kernels/" + about["kernel"].get<std::string>() + ".cu";
  for (const emu::Slice& slice : timeline.slices) {
    const auto [process, thread] = ids[size_t(slice.track)];
    Json event = {{"ph", "X"},
                  {"pid", process},
                  {"tid", thread},
                  {"ts", slice.start},
                  {"dur", slice.end - slice.start},
                  {"name", slice.name},
                  {"cat", slice.unit},
                  {"args", Json::object()}};
    const auto [file, statement] = place_of(slice.at);
    if (file != own) event["args"]["file"] = file;
    if (!statement.empty()) event["args"]["statement"] = statement;
    if (slice.bytes > 0) event["args"]["bytes"] = slice.bytes;
    if (slice.wavefronts > 0) event["args"]["wavefronts"] = slice.wavefronts;
    if (slice.ideal > 0) event["args"]["ideal"] = slice.ideal;
    if (slice.flops > 0) event["args"]["flops"] = slice.flops;
    if (!slice.of.empty()) event["args"]["of"] = slice.of;
    add(event);
  }

  // An arrow begins and ends inside slices, which is how the viewers find them.
  for (size_t i = 0; i < timeline.flows.size(); i++) {
    const emu::Flow& flow = timeline.flows[i];
    const emu::Slice &from = timeline.slices[flow.from], &to = timeline.slices[flow.to];
    const int64_t end = std::clamp(from.end - 1, from.start, std::max(from.start, to.end - 1));
    const auto arrow = [&](const char* phase, const emu::Slice& at, int64_t time) {
      const auto [process, thread] = ids[size_t(at.track)];
      Json event = {{"ph", phase}, {"id", i + 1},       {"pid", process},      {"tid", thread},
                    {"ts", time},  {"name", flow.name}, {"cat", "ends a wait"}};
      if (*phase == 'f') event["bp"] = "e";  // the slice around it, not the next one
      add(event);
    };
    arrow("s", from, end);
    arrow("f", to, std::max(to.end - 1, to.start));
  }
  if (text.ends_with(",\n")) text.erase(text.size() - 2, 1);

  text += "],\n\"displayTimeUnit\": \"ms\",\n\"otherData\": " + about.dump() + "}\n";
  return text;
}

Json about_launches(const std::string& note, const std::string& kernel, const Problem& problem,
                    uint64_t cta, size_t launches, int64_t cycles) {
  return {{"note", note},
          {"kernel", kernel},
          {"dtype", name_of(problem.dtype)},
          {"batch", problem.batch},
          {"heads", problem.heads},
          {"seq_len", problem.seq_len},
          {"head_dim", problem.head_dim},
          {"cta", cta},
          {"launches", launches},
          {"cycles", cycles}};
}

}  // namespace

std::string trace_json(const std::vector<emu::Recording>& recordings, const Problem& problem,
                       const emu::Timeline& timeline, const emu::Sm& sm) {
  const bool none = recordings.empty();
  Json about = about_launches(
      "A model for seeing order and overlap, not a measurement. A microsecond here stands for a "
      "cycle.",
      none ? "" : recordings.front().kernel, problem, none ? 0 : recordings.front().cta,
      recordings.size(), timeline.cycles);
  about["model"] = {{"schedulers", sm.schedulers},
                    {"product_flops_a_cycle", sm.product_flops},
                    {"async_product_flops_a_cycle", sm.async_product_flops},
                    {"product_latency", sm.product_latency},
                    {"exponential_cycles", sm.exponential_cycles},
                    {"exponential_latency", sm.exponential_latency},
                    {"exchange_latency", sm.exchange_latency},
                    {"shared_latency", sm.shared_latency},
                    {"global_latency", sm.global_latency},
                    {"global_bytes_a_cycle", sm.global_bytes}};
  return trace_json(timeline, about);
}

std::string trace_json(const GpuTrace& trace, const Problem& problem) {
  const GpuTimeline& recorded = trace.timeline;
  const bool none = trace.recordings.empty();
  Json about = about_launches(
      "Recorded on a GPU, by lane 0 of each warp. A microsecond here stands for a cycle of the "
      "SM's clock.",
      none ? "" : trace.recordings.front().kernel, problem, none ? 0 : trace.recordings.front().cta,
      trace.recordings.size(), recorded.timeline.cycles);
  about["recorded"] = {{"source", source_of(about["kernel"].get<std::string>())},
                       {"gpu", trace.gpu},
                       {"sm", recorded.sm},
                       {"begin_ns", recorded.begin_ns},
                       {"records", recorded.records},
                       {"warps_out_of_space", recorded.out_of_space},
                       {"ms", trace.ms},
                       {"recording_ms", trace.recording_ms}};
  return trace_json(recorded.timeline, about);
}

}  // namespace fa
