#include "cli/inspect/doctor_report.h"

#include <fmt/ranges.h>
#include <pwd.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <regex>

#include "base/log.h"
#include "base/printable.h"
#include "cli/inspect/processor.h"
#include "cli/version.h"

namespace lumen::cli {
namespace {

int64_t passed(const run::SelfTest& e) {
  int64_t n = 0;
  for (const auto& t : e.trials) n += t.line.ok && t.line.chosen ? 1 : 0;
  return n;
}

nlohmann::json json_of(const run::CheckLine& line, const std::string& format) {
  return {{"format", format},  {"what", line.what},     {"ok", line.ok},
          {"ran", line.ran},   {"chosen", line.chosen}, {"detail", line.detail},
          {"plan", line.plan}, {"rows", line.rows},     {"seconds", line.seconds}};
}

nlohmann::json json_of(const run::SelfTest& e) {
  nlohmann::json out = {{"device", e.device},
                        {"usable", e.usable},
                        {"description", e.description},
                        {"machine", e.machine},
                        {"tier", e.tier},
                        {"tries_programs", e.tries_programs},
                        {"products", nlohmann::json::array()},
                        {"emulated", nlohmann::json::array()},
                        {"refused", nlohmann::json::array()},
                        {"determinism", {{"class", e.determinism.name}, {"detail", e.determinism.detail}}},
                        {"memory_bytes", e.memory.total},
                        {"memory_free_bytes", e.memory.free},
                        {"memory_rate", e.memory_rate},
                        {"refusal", e.refusal},
                        {"advice", e.advice},
                        {"self_test", nlohmann::json::array()}};
  for (const auto& p : e.products)
    out["products"].push_back({{"left", p.left}, {"right", p.right}, {"sums", p.sums}, {"by", p.by}, {"rows", p.rows}});
  for (const auto& m : e.emulated) out["emulated"].push_back({{"kind", m.kind}, {"by", m.by}});
  for (const auto& r : e.refused) out["refused"].push_back({{"row", r.row}, {"why", r.why}});
  for (const auto& t : e.trials) out["self_test"].push_back(json_of(t.line, t.format));
  return out;
}

nlohmann::json json_of(const Findings& found) {
  nlohmann::json out;
  out["version"] = kVersion;
  out["compiler"] = run::compiler_version();
  out["processor"] = processor_name();
  out["cores"] = sysconf(_SC_NPROCESSORS_ONLN);
  out["native_machine"] = run::native_machine_name();
  out["devices"] = nlohmann::json::array();
  for (const run::SelfTest& e : found.devices) out["devices"].push_back(json_of(e));
  out["drivers"] = nlohmann::json::array();
  for (const run::GpuSurvey& s : found.surveys)
    out["drivers"].push_back({{"name", run::vendor_name(s.vendor)},
                              {"library", s.library},
                              {"version", s.driver},
                              {"gpus", s.gpus.size()},
                              {"refusal", s.refusal},
                              {"advice", s.advice}});
  for (const run::LibraryFound& l : found.libraries)
    out["libraries"].push_back({{"name", l.name}, {"file", l.file}, {"version", l.version}, {"remark", l.remark}});
  for (const auto& m : found.machines)
    out["machines"].push_back({{"name", m.name},
                               {"triple", m.triple},
                               {"vector_bits", m.vector_bits},
                               {"tier", m.tier},
                               {"runs_here", m.runs_here}});
  const CacheState& c = found.cache;
  out["cache"] = {{"path", c.path}, {"state", c.state}, {"files", c.files}, {"bytes", c.bytes}};
  out["ok"] = found.usable();
  return out;
}

// "bf16 x bf16 -> f32 by matrix instructions (4)"
std::string text_of(const run::SelfTest::Product& p) {
  return fmt::format("{} x {} -> {} by {}{}", p.left, p.right, p.sums, p.by,
                     p.rows.size() > 1 ? fmt::format(" ({} shapes)", p.rows.size()) : "");
}

std::string text_of(const run::SelfTest& e) {
  std::string out = fmt::format("  {:<8} {:<7}  {}\n", e.device, e.usable ? "usable" : "REFUSED",
                                e.description.empty() ? e.machine : e.description);
  const auto line = [&](const std::string& text) { out += fmt::format("{:20}{}\n", "", text); };
  if (!e.refusal.empty()) line("why: " + e.refusal);
  if (!e.refusal.empty() && !e.advice.empty()) line("hint: " + e.advice);
  if (e.tier.empty()) return out;  // the device could not be opened
  line(fmt::format("code for {} ({})", e.machine, e.tier));
  line(fmt::format("kernels of programs are {} (--try)",
                   e.tries_programs ? "tried once each before they are trusted" : "trusted as they are"));
  line(fmt::format("products by instructions of their own: f32 x f32 -> f32{}", e.products.empty() ? "" : ","));
  for (size_t i = 0; i < e.products.size(); ++i)
    line(fmt::format("  {}{}", text_of(e.products[i]), i + 1 < e.products.size() ? "," : ""));
  std::string others;
  for (const auto& m : e.emulated) others += fmt::format("{}{} through {}", others.empty() ? "" : "; ", m.kind, m.by);
  if (!others.empty()) line("products emulated: " + others);
  for (const auto& r : e.refused) line(fmt::format("refused: {} computes wrongly ({})", r.row, r.why));
  line(fmt::format("{} of {} free{}", size_text(e.memory.free), size_text(e.memory.total),
                   e.memory_rate > 0 ? fmt::format(", {:.0f} GB/s", e.memory_rate / 1e9) : ""));
  if (!e.determinism.name.empty()) line(fmt::format("determinism: {} ({})", e.determinism.name, e.determinism.detail));
  if (e.trials.empty()) return out;
  int64_t missing = 0;
  for (const auto& t : e.trials) missing += t.line.chosen ? 0 : 1;
  line(fmt::format("self-test: {} of {} kernels agree with the evaluator{}", passed(e), std::ssize(e.trials) - missing,
                   missing == 0 ? "" : fmt::format("; {} instructions no plan chose (-v names them)", missing)));
  for (const auto& t : e.trials) {
    if (t.line.ok && verbosity() != Verbosity::verbose) continue;
    const char* outcome = !t.line.chosen ? "none" : t.line.ok ? "ok  " : "FAIL";
    line(fmt::format("  {} {:<12} {:<32} {}", outcome, t.format, t.line.what, t.line.detail));
    if (!t.line.plan.empty()) line(fmt::format("       {}", t.line.plan));
  }
  return out;
}

// ---- the shareable report

constexpr const char* kVariables[] = {"AMD_LOG_LEVEL",
                                      "AMD_SERIALIZE_KERNEL",
                                      "CUDA_LAUNCH_BLOCKING",
                                      "CUDA_VISIBLE_DEVICES",
                                      "GPU_DEVICE_ORDINAL",
                                      "GPU_MAX_HW_QUEUES",
                                      "HIP_LAUNCH_BLOCKING",
                                      "HIP_VISIBLE_DEVICES",
                                      "HSA_ENABLE_SDMA",
                                      "HSA_OVERRIDE_GFX_VERSION",
                                      "HSA_XNACK",
                                      "LUMEN_CACHE",
                                      "LUMEN_CONFIG",
                                      "LUMEN_CUBLASLT_LIBRARY",
                                      "LUMEN_CUDA_LIBRARY",
                                      "LUMEN_CURL_LIBRARY",
                                      "LUMEN_HIPBLASLT_LIBRARY",
                                      "LUMEN_HIP_LIBRARY",
                                      "LUMEN_MEMORY",
                                      "OMP_NUM_THREADS",
                                      "OMP_PROC_BIND",
                                      "ROCR_VISIBLE_DEVICES"};

void replace_all(std::string* text, const std::string& what, const char* by) {
  if (what.size() < 3) return;  // too short to be a private name
  for (size_t at = text->find(what); at != std::string::npos; at = text->find(what, at + std::string(by).size()))
    text->replace(at, what.size(), by);
}

// Removes private data about a person, a host or one card: names, device serial numbers, and all of a path but its last
// component.
class Scrubber {
 public:
  Scrubber() {
    utsname system{};
    if (::uname(&system) == 0) host_ = system.nodename;
    if (const passwd* user = ::getpwuid(::geteuid())) user_ = user->pw_name;
  }
  std::string operator()(std::string text) const {
    static const std::regex path(R"((^|[\s"'(=:,])~?/(?:[^\s"'():,;/]+/)*([^\s"'():,;/]*))");
    static const std::regex id(R"([0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12})");
    static const std::regex bus(R"([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9])");
    text = std::regex_replace(text, path, "$1.../$2");
    text = std::regex_replace(text, id, "(id)");
    text = std::regex_replace(text, bus, "(bus)");
    replace_all(&text, host_, "(host)");
    if (user_ != "root") replace_all(&text, user_, "(user)");
    return text;
  }
  void everywhere(nlohmann::json* json) const {
    if (json->is_string()) {
      *json = (*this)(json->get<std::string>());
    } else if (json->is_structured()) {
      for (auto& item : *json) everywhere(&item);
    }
  }

 private:
  std::string host_, user_;
};

nlohmann::json json_of(const run::GpuSurvey& s) {
  nlohmann::json gpus = nlohmann::json::array();
  for (const run::GpuFound& g : s.gpus)
    gpus.push_back({{"ordinal", g.ordinal},
                    {"name", g.name},
                    {"architecture", g.architecture},
                    {"memory_bytes", g.bytes},
                    {"units", g.units},
                    {"integrated", g.integrated},
                    {"machine", g.match.machine ? g.match.machine->name : ""},
                    {"remark", g.match.remark}});
  return gpus;
}

}  // namespace

std::string findings_text(const Findings& found) {
  const CacheState& cache = found.cache;
  std::string out = fmt::format("lumen {} ({})\nprocessor  {}, {} cores\nkernels    {}\ndevices\n", kVersion,
                                run::compiler_version(), processor_name(), sysconf(_SC_NPROCESSORS_ONLN),
                                cache.path.empty() ? "cache off"
                                                   : fmt::format("{} ({}, {} files, {})", cache.path, cache.state,
                                                                 cache.files, size_text(cache.bytes)));
  for (const run::SelfTest& e : found.devices) out += text_of(e);
  for (const run::GpuSurvey& s : found.surveys)
    if (s.gpus.empty())
      out += fmt::format("  {:<8} none     {}\n{:20}hint: {}\n", run::vendor_name(s.vendor),
                         s.refusal.empty() ? "no such GPU" : s.refusal, "",
                         s.advice.empty() ? "`lumen doctor` without --device lists all" : s.advice);
  out += "libraries\n";
  for (const run::GpuSurvey& s : found.surveys)
    if (!s.library.empty()) out += fmt::format("  {:<10} {} ({})\n", run::vendor_name(s.vendor), s.driver, s.library);
  for (const run::LibraryFound& l : found.libraries)
    out += l.file.empty() ? fmt::format("  {:<10} not here\n", l.name)
                          : fmt::format("  {:<10} {} ({}); {}\n", l.name, l.version, l.file, l.remark);
  out += fmt::format("machines   code for this processor: {}\n", run::native_machine_name());
  for (const auto& m : found.machines)
    out += fmt::format("  {:<22} {:>5} bits  {:<10} {}\n", m.name, m.vector_bits, m.tier,
                       m.runs_here ? "runs here" : "compiles only");
  return out + (found.usable() ? "all is well on the devices marked usable\n" : "nothing usable was found\n");
}

std::string findings_json(const Findings& found) {
  return json_of(found).dump(2) + "\n";
}

std::string shareable_json(const Findings& found) {
  nlohmann::json out = json_of(found);
  out["report"] = 1;
  out["cache"].erase("path");
  utsname system{};
  if (::uname(&system) == 0)
    out["system"] = {{"name", system.sysname}, {"release", system.release}, {"machine", system.machine}};
  out["gpus"] = nlohmann::json::object();
  for (const run::GpuSurvey& s : found.surveys) out["gpus"][run::vendor_name(s.vendor)] = json_of(s);
  out["environment"] = nlohmann::json::object();
  for (const char* name : kVariables)
    if (const char* value = std::getenv(name)) out["environment"][name] = value;
  Scrubber().everywhere(&out);
  return out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace lumen::cli
