#include "run/engine/verdict.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "emit/emit.h"

namespace lumen::run {
namespace {

constexpr std::string_view kSound = "sound", kWrong = "wrong: ";
constexpr uint64_t kLargestVerdict = 4096;

std::filesystem::path file_of(const Device& device, const std::filesystem::path& folder) {
  const std::string key = fmt::format("{}\n{}\n{}", device.machine().name, device.identity(), emit::version());
  return folder / "verdicts" / hash_text(key).hex();
}

// What is remembered: a disagreement, or "" for none.
std::optional<std::string> known_verdict(const Device& device, const std::filesystem::path& folder) {
  if (folder.empty()) return std::nullopt;
  std::string text;
  try {
    text = read_file(file_of(device, folder), kLargestVerdict);
  } catch (const Error&) {
    return std::nullopt;  // not tried yet
  }
  if (text == kSound) return std::string();
  if (text.starts_with(kWrong)) return text.substr(kWrong.size());
  return std::nullopt;  // damaged
}

}  // namespace

std::string disagreement(const std::vector<CheckLine>& lines) {
  const auto wrong = std::find_if(lines.begin(), lines.end(), [](const CheckLine& l) { return l.ran && !l.ok; });
  return wrong == lines.end() ? "" : fmt::format("{}: {}", wrong->what, wrong->detail);
}

void remember_verdict(const Device& device, const std::filesystem::path& folder, const std::string& disagreement) {
  if (folder.empty()) return;
  try {
    const std::filesystem::path file = file_of(device, folder);
    std::filesystem::create_directories(file.parent_path());
    write_file_atomic(file, disagreement.empty() ? std::string(kSound)
                                                 : std::string(kWrong) + disagreement.substr(0, kLargestVerdict / 2));
  } catch (const std::exception& error) {
    verbose(fmt::format("the verdict on {} is not kept: {}", device.describe(), error.what()));
  }
}

void require_sound(Engine& engine, const std::filesystem::path& folder) {
  std::optional<std::string> verdict = known_verdict(engine.device(), folder);
  if (!verdict) {
    verbose(fmt::format("first use of {}: its kernels are tested", engine.device().describe()));
    const std::vector<CheckLine> lines = check_families(engine);
    verdict = disagreement(lines);
    const bool whole = std::all_of(lines.begin(), lines.end(), [](const CheckLine& l) { return l.ran; });
    if (whole || !verdict->empty()) remember_verdict(engine.device(), folder, *verdict);
  }
  if (!verdict->empty())
    throw Error(Exit::hardware,
                fmt::format("{} is refused: its kernels disagree with the evaluator ({})", engine.device().describe(),
                            *verdict),
                "`lumen doctor` tests it again; --device cpu computes right");
}

}  // namespace lumen::run
