#include "run/engine/self_test_result.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/log.h"

namespace lumen::run {
namespace {

constexpr std::string_view kSound = "sound", kWrong = "wrong: ", kWithout = "without: ";
constexpr size_t kLongestWhy = 2048, kMostRefused = 1000;
constexpr const char* kKind = "verdicts";
constexpr int kTrialsVersion = 2;  // changes with the trials

std::string name_of(const CompileContext& context) {
  return context.cache->key_of(fmt::format("self-test {}", kTrialsVersion));
}

std::string line_of(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text.substr(0, kLongestWhy);
}

// One line for each refused row: its name, a space and the reason; or one line for the whole device.
std::optional<DeviceResult> read_result(const std::string& text) {
  DeviceResult out;
  if (text == kSound) return out;
  if (text.starts_with(kWrong)) {
    out.wrong = text.substr(kWrong.size());
    return out;
  }
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    const size_t space = line.find(' ', kWithout.size());
    if (!line.starts_with(kWithout) || space == std::string::npos || out.refused.size() == kMostRefused)
      return std::nullopt;
    out.refused.push_back({line.substr(kWithout.size(), space - kWithout.size()), line.substr(space + 1)});
    at = end + 1;
  }
  return out.refused.empty() ? std::nullopt : std::optional(out);  // empty: not tried yet
}

}  // namespace

std::string disagreement(const std::vector<CheckLine>& lines) {
  const auto wrong = std::find_if(lines.begin(), lines.end(), [](const CheckLine& l) { return l.ran && !l.ok; });
  return wrong == lines.end() ? "" : fmt::format("{}: {}", wrong->what, wrong->detail);
}

DeviceResult result_of(const Soundness& s) {
  return {s.refused, s.wrong};
}

void keep_result(const CompileContext& context, const DeviceResult& outcome) {
  std::string text;
  if (!outcome.wrong.empty()) {
    text = std::string(kWrong) + line_of(outcome.wrong);
  } else if (outcome.refused.empty()) {
    text = kSound;
  } else {
    for (const RefusedRow& r : outcome.refused) text += fmt::format("{}{} {}\n", kWithout, r.row, line_of(r.why));
  }
  context.cache->kept().write(kKind, name_of(context), text);
}

DeviceResult known_or_tried(const CompileContext& context, const OpenMachine& open) {
  if (const auto known = read_result(context.cache->kept().read(kKind, name_of(context)))) return *known;
  verbose(fmt::format("first use of {}: its kernels are tested", context.device->describe()));
  const machine::Machine& machine = context.device->machine();
  const Soundness found = find_soundness(context, trials_for(machine, TrialDepth::first_use, context.threads), open);
  for (const CheckLine& line : found.lines)
    verbose(fmt::format("  {} {:<44} {:6.1f} ms  {}", line.ok ? "ok  " : "FAIL", line.what, 1e3 * line.seconds,
                        line.detail));
  for (const CheckLine& line : rows_not_chosen(machine, found.lines))
    verbose(fmt::format("  none {}: {}", line.what, line.detail));
  DeviceResult outcome = result_of(found);
  if (found.whole || !outcome.wrong.empty()) keep_result(context, outcome);
  return outcome;
}

}  // namespace lumen::run
