#include "cli/inspect/bench_report.h"

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/printable.h"
#include "cli/inspect/processor.h"
#include "cli/version.h"

namespace lumen::cli {
namespace {

using Json = nlohmann::ordered_json;

// "CPU", or the name of the GPU's interface.
std::string backend(const BenchLine& line) {
  if (line.gpu.empty()) return "CPU";
  std::string name = line.gpu.substr(0, line.gpu.find_first_of(": "));
  for (char& c : name) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

// All fields of a result; the output forms differ only in how they write them.
Json fields(const BenchLine& line) {
  const model::infer::Speed& s = line.speed;
  const auto nanoseconds = [](double seconds) { return static_cast<int64_t>(std::llround(seconds * 1e9)); };
  Json out;
  out["build_commit"] = fmt::format("lumen {}", kVersion);
  out["cpu_info"] = processor_name();
  out["gpu_info"] = line.gpu;
  out["backends"] = backend(line);
  out["machine"] = line.machine;
  out["model_filename"] = line.file;
  out["model_type"] = line.type;
  out["model_size"] = line.model_bytes;
  out["model_n_params"] = line.parameters;
  out["n_batch"] = line.chunk;
  out["n_ubatch"] = line.chunk;
  out["n_threads"] = line.threads;
  out["type_k"] = line.type_k;
  out["type_v"] = line.type_v;
  out["exact"] = line.exact;
  out["n_prompt"] = s.test.prompt;
  out["n_gen"] = s.test.generate;
  out["n_depth"] = s.test.depth;
  out["n_sequences"] = s.test.sequences;
  out["test_time"] = line.time;
  out["avg_ns"] = nanoseconds(s.mean_seconds());
  out["stddev_ns"] = nanoseconds(s.deviation_seconds());
  out["avg_ts"] = s.mean_rate();
  out["stddev_ts"] = s.deviation_rate();
  return out;
}

Json with_samples(const BenchLine& line) {
  Json out = fields(line);
  std::vector<int64_t> ns;
  for (const double seconds : line.speed.seconds) ns.push_back(std::llround(seconds * 1e9));
  out["samples_ns"] = ns;
  out["samples_ts"] = line.speed.rates();
  return out;
}

std::string csv_field(const Json& value) {
  std::string text = value.is_string() ? value.get<std::string>() : value.dump(), out = "\"";
  for (const char c : text) out += c == '"' ? "\"\"" : std::string(1, c);
  return out + "\"";
}

std::string csv_row(const std::vector<std::string>& cells) {
  std::string out;
  for (const std::string& cell : cells) out += (out.empty() ? "" : ",") + cell;
  return out + "\n";
}

std::string count_text(int64_t n) {
  const double x = n;
  if (n >= 1'000'000'000) return fmt::format("{:.2f} B", x / 1e9);
  return n >= 1'000'000 ? fmt::format("{:.2f} M", x / 1e6) : fmt::format("{:.2f} K", x / 1e3);
}

std::string markdown_row(const std::string& model, const std::string& size, const std::string& params,
                         const std::string& backend, const std::string& threads, const std::string& test,
                         const std::string& rate) {
  return fmt::format("| {:<30} | {:>10} | {:>10} | {:<10} | {:>7} | {:>15} | {:>20} |\n", model, size, params, backend,
                     threads, test, rate);
}

}  // namespace

BenchForm bench_form(const std::string& name) {
  if (name == "md") return BenchForm::md;
  if (name == "csv") return BenchForm::csv;
  if (name == "json") return BenchForm::json;
  if (name == "jsonl") return BenchForm::jsonl;
  throw Error(Exit::usage, fmt::format("unknown output form '{}'", name), "forms: md, csv, json, jsonl");
}

std::string bench_head(BenchForm form) {
  switch (form) {
    case BenchForm::md:
      return markdown_row("model", "size", "params", "backend", "threads", "test", "t/s") +
             "| ------------------------------ | ---------: | ---------: | ---------- | ------: | --------------: | "
             "-------------------: |\n";
    case BenchForm::csv: {
      std::vector<std::string> names;
      const Json all = fields({});
      for (auto it = all.begin(); it != all.end(); ++it) names.push_back(it.key());
      return csv_row(names);
    }
    case BenchForm::json:
      return "[\n";
    case BenchForm::jsonl:
      return "";
  }
  return "";
}

std::string bench_line(BenchForm form, const BenchLine& line, bool first) {
  switch (form) {
    case BenchForm::md:
      return markdown_row(line.type, size_text(line.model_bytes), count_text(line.parameters), backend(line),
                          std::to_string(line.threads), line.speed.test.name(),
                          fmt::format("{:.2f} ± {:.2f}", line.speed.mean_rate(), line.speed.deviation_rate()));
    case BenchForm::csv: {
      std::vector<std::string> cells;
      const Json all = fields(line);
      for (auto it = all.begin(); it != all.end(); ++it) cells.push_back(csv_field(it.value()));
      return csv_row(cells);
    }
    case BenchForm::json:
      return (first ? "" : ",\n") + with_samples(line).dump(2);
    case BenchForm::jsonl:
      return with_samples(line).dump() + "\n";
  }
  return "";
}

std::string bench_foot(BenchForm form) {
  return form == BenchForm::json ? "\n]\n" : "";
}

std::string model_type(const model::arch::Model& model) {
  std::map<std::string, int64_t> counts;
  for (const model::arch::Parameter& p : model.parameters) {
    const FormatRef& f = model.weights.at(p.name).type.element.format;
    counts[f ? f->name : "f32"] += p.count();
  }
  std::string most;
  for (const auto& [name, count] : counts)
    if (most.empty() || count > counts[most]) most = name;
  const double n = model.weight_count();
  const std::string size = n >= 1e9   ? fmt::format("{:.1f}B", n / 1e9)
                           : n >= 1e6 ? fmt::format("{:.0f}M", n / 1e6)
                                      : fmt::format("{:.0f}K", n / 1e3);
  return fmt::format("{} {} {}", model.family->name(), size, most);
}

}  // namespace lumen::cli
