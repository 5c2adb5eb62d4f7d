// lumen format list | show | check
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/error.h"
#include "base/file/file.h"
#include "base/printable.h"
#include "cli/command.h"
#include "cli/names.h"
#include "cli/output.h"
#include "cli/settings/declare.h"
#include "model/arch/family/source.h"
#include "number/facts/facts.h"
#include "run/device/choose/choose.h"
#include "run/engine/format_check.h"
#include "run/engine/stages.h"

namespace lumen::cli {
namespace {

struct FormatFlags {
  std::string file, name;
};

std::string block_text(const Format& f) {
  std::string text = std::to_string(f.block);
  if (f.row_bytes > 0) text += "+row";
  if (f.tile_bytes > 0) text += fmt::format("+{}x{}", f.tile_rows, f.tile_columns);
  if (f.tensor_bytes > 0) text += "+tensor";
  return text;
}

std::string facts_text(const Format& f) {
  const FormatFacts facts = facts_of(f);
  std::vector<std::string> words;
  if (facts.affine) words.push_back(facts.affine->q_is_table ? "table" : "integer");
  if (facts.affine && facts.affine->offset) words.push_back("offset");
  if (facts.power_of_two_scale) words.push_back("2^n scale");
  if (!f.encodes()) words.push_back("decode only");
  std::string text;
  for (const std::string& w : words) text += (text.empty() ? "" : ", ") + w;
  return text;
}

int list(const Shared& shared) {
  const model::arch::LibraryRef library = shared.library();
  std::vector<FormatRef> formats = library->formats().all();
  std::stable_sort(formats.begin(), formats.end(),
                   [](const FormatRef& a, const FormatRef& b) { return a->bits_per_weight() > b->bits_per_weight(); });
  std::string out =
      fmt::format("{:<16} {:>7} {:>12} {:>5}  {:<24} {}\n", "format", "bits", "block", "gguf", "kind", "");
  for (const FormatRef& f : formats) {
    out += fmt::format("{:<16} {:>7.3f} {:>12} {:>5}  {:<24} {}\n", f->name, f->bits_per_weight(), block_text(*f),
                       f->gguf_type ? std::to_string(*f->gguf_type) : "-", facts_text(*f), printable(f->doc));
  }
  out += fmt::format("{} formats\n", formats.size());
  put(out);
  return 0;
}

int show(const Shared& shared, const FormatFlags& flags) {
  const FormatRef f = named_format(shared.library()->formats(), flags.name);
  put_text(f->source_text + "\n");
  for (const std::string& line : facts_of(*f).lines) put(fmt::format("# {}\n", line));
  return 0;
}

// The formats whose bits per weight are nearest to those of f, except f itself.
std::vector<FormatRef> neighbours(const FormatLibrary& library, const Format& f, size_t count) {
  std::vector<FormatRef> others;
  for (const FormatRef& other : library.all()) {
    if (other->hash != f.hash && other->name != f.name && other->encodes()) others.push_back(other);
  }
  const double bits = f.bits_per_weight();
  std::stable_sort(others.begin(), others.end(), [&](const FormatRef& a, const FormatRef& b) {
    return std::abs(a->bits_per_weight() - bits) < std::abs(b->bits_per_weight() - bits);
  });
  others.resize(std::min(others.size(), count));
  return others;
}

void print_errors(const FormatLibrary& library, const FormatRef& f) {
  std::vector<FormatRef> rows = neighbours(library, *f, 4);
  rows.push_back(f);
  std::stable_sort(rows.begin(), rows.end(),
                   [](const FormatRef& a, const FormatRef& b) { return a->bits_per_weight() > b->bits_per_weight(); });
  std::string out = fmt::format("  {:<18} {:>7} {:>10} {:>12}\n", "relative error", "bits", "Gaussian", "heavy tails");
  for (const FormatRef& row : rows) {
    const run::FormatError error = run::format_error(*row);
    out += fmt::format("{} {:<18} {:>7.3f} {:>10.5f} {:>12.5f}\n", row == f ? ">" : " ", row->name,
                       row->bits_per_weight(), error.gaussian, error.heavy);
  }
  put(out);
}

// Prints check results and returns the number of failed ones.
int print_lines(const std::vector<run::CheckLine>& lines) {
  int failed = 0;
  for (const run::CheckLine& line : lines) {
    failed += line.ok ? 0 : 1;
    put(fmt::format("  {} {:<32} {:<16} {}\n", line.ok ? "ok  " : "FAIL", line.what, line.machine, line.detail));
  }
  return failed;
}

int check_one(const Shared& shared, const FormatLibrary& library, const FormatRef& f) {
  put(fmt::format("{}: {:.3f} bits per weight, block {}\n", f->name, f->bits_per_weight(), block_text(*f)));
  for (const std::string& line : facts_of(*f).lines) put(fmt::format("  {}\n", line));
  int failed = print_lines(run::check_codec(*f));
  for (const run::MachineLine& machine : run::machine_lines()) {
    if (!machine.runs_here) continue;
    run::Engine::Options options;
    options.cache_folder = shared.cache;
    options.threads = shared.threads;
    options.machine = run::machine_to_run(machine.name);
    run::Engine engine(options);
    failed += print_lines(run::check_kernels(engine, f));
  }
  if (run::parse_device(shared.device).kind != run::DeviceChoice::Kind::cpu) {
    run::Engine engine = shared.engine();
    if (engine.device().machine().kind == machine::Kind::gpu) failed += print_lines(run::check_kernels(engine, f));
  }
  if (f->encodes()) print_errors(library, f);
  return failed;
}

int check(const Shared& shared, const FormatFlags& flags) {
  auto library = model::arch::Library::builtin();
  for (const std::string& folder : shared.format_folders) library->add_format_folder(folder);
  std::vector<FormatRef> formats;
  FormatLibrary all = library->formats();
  if (const FormatRef known = all.find(flags.file)) {
    formats.push_back(known);
  } else {
    if (!flags.file.ends_with(".lum") && !std::filesystem::exists(flags.file))
      (void)named_format(all, flags.file);  // throws the Error with the nearest names
    const auto source = std::make_shared<Source>(Source{flags.file, read_file(flags.file, 1 << 20)});
    formats = model::arch::formats_of_text(all, source);
  }
  int failed = 0;
  for (const FormatRef& f : formats) failed += check_one(shared, all, f);
  put(failed == 0 ? "all checks passed\n" : fmt::format("{} checks FAILED\n", failed));
  return static_cast<int>(failed == 0 ? Exit::ok : Exit::verify);
}

}  // namespace

void add_format(CLI::App& app, Command& command) {
  auto flags = std::make_shared<FormatFlags>();
  CLI::App* sub = app.add_subcommand("format", "Number formats: list them, show one, test one of your own");
  sub->require_subcommand(1);
  CLI::App* list_command = sub->add_subcommand("list", "List all formats with bits per weight and properties");
  add_shared_flags(*list_command, command.shared);
  list_command->callback([&command] { command.action = [shared = command.shared] { return list(*shared); }; });
  CLI::App* show_command = sub->add_subcommand("show", "Show the definition of a format and its properties");
  add_setting(*show_command, "name", flags->name);
  set_action(*show_command, command, flags, show);
  CLI::App* check_command = sub->add_subcommand("check",
                                                "Test the codec, and kernels on every machine that runs here and on "
                                                "--device; compare errors with similar formats");
  add_setting(*check_command, "file", flags->file);
  check_command->footer(
      "Exit code 5 when a check fails.\n"
      "Examples:\n"
      "  lumen format check my_format.lum\n"
      "  lumen format check NAME --formats ./my-formats");
  set_action(*check_command, command, flags, check);
}

}  // namespace lumen::cli
