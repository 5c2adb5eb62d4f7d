// lumen report RUN.., or a document of a compression or of a study
#include "model/report/report.h"

#include <filesystem>

#include "base/error.h"
#include "base/file/file.h"
#include "base/log.h"
#include "base/structured/json.h"
#include "cli/command.h"
#include "cli/output.h"
#include "cli/settings/declare.h"
#include "model/report/compression/compression.h"
#include "model/report/study.h"

namespace lumen::cli {
namespace {

struct ReportFlags {
  std::vector<std::string> runs;
  std::string output;
  bool text = false;
};

constexpr uint64_t kLargestDocument = uint64_t{256} << 20;

bool is_document(const std::string& path) {
  std::error_code failure;
  return std::filesystem::path(path).extension() == ".json" && std::filesystem::is_regular_file(path, failure);
}

int report_document(const ReportFlags& flags) {
  const std::filesystem::path in = flags.runs[0];
  if (flags.runs.size() > 1)
    throw Error(Exit::usage, fmt::format("{} is a document of its own, and is shown alone", in.string()),
                "`lumen compare` puts models side by side");
  const std::string text = read_file(in, kLargestDocument);
  std::string page, table;
  if (const nlohmann::json document = parse_json(text, in.string()); model::report::is_study(document)) {
    const model::report::Study study = model::report::study_of(document, in.string());
    page = model::report::html_page(study), table = model::report::text_page(study);
  } else {
    const model::report::CompressionReport compression = model::report::parse_compression_report(text, in.string());
    page = model::report::html_report(compression), table = model::report::text_report(compression);
  }
  if (flags.text) {
    put(table);
    return 0;
  }
  const std::filesystem::path output =
      flags.output.empty() ? std::filesystem::path(in).replace_extension(".html") : std::filesystem::path(flags.output);
  write_file_atomic(output, page);
  put(fmt::format("wrote {}\n", output.string()));
  return 0;
}

int report(const ReportFlags& flags) {
  for (const std::string& run : flags.runs)
    if (is_document(run)) return report_document(flags);
  std::vector<model::report::RunLog> runs;
  for (const std::string& run : flags.runs) {
    runs.push_back(model::report::read_run_log(run));
    if (const model::report::RunLog& log = runs.back(); log.skipped > 0)
      warn(fmt::format("{}: {} lines are left out; {}", log.path.string(), log.skipped, log.first_skipped));
  }
  // Runs in folders of the same name are shown by their paths.
  for (size_t i = 0; i < runs.size(); ++i)
    for (size_t j = 0; j < runs.size(); ++j)
      if (i != j && runs[i].name == runs[j].name) runs[i].name = flags.runs[i];
  if (flags.text) {
    put(model::report::text_report(runs));
    return 0;
  }
  std::filesystem::path output = flags.output;
  if (output.empty())
    output = runs.size() == 1 ? runs[0].path.parent_path() / model::report::kReportName
                              : std::filesystem::path("report.html");
  write_file_atomic(output, model::report::html_report(runs));
  put(fmt::format("wrote {}\n", output.string()));
  return 0;
}

}  // namespace

void add_report(CLI::App& app, Command& command) {
  auto flags = std::make_shared<ReportFlags>();
  CLI::App* sub =
      app.add_subcommand("report", "Make a page of a training run, a compressed model or a study, or compare runs");
  add_settings(*sub, "runs", flags->runs, "--output", flags->output, "--text", flags->text);
  sub->footer(
      "The page is one file that needs no network.\n"
      "Examples:\n"
      "  lumen report my-model\n"
      "  lumen report first second third -o compared.html\n"
      "  lumen report my-model --text\n"
      "  lumen report compression.json -o page.html");
  set_action(*sub, command, flags, report);
}

}  // namespace lumen::cli
