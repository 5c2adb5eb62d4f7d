// lumen compile FILE
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/file/file.h"
#include "base/log.h"
#include "base/messages/spelling.h"
#include "cli/command.h"
#include "cli/inspect/check_family.h"
#include "cli/names.h"
#include "cli/numbers.h"
#include "cli/output.h"
#include "cli/settings/declare.h"
#include "model/arch/family/source.h"
#include "model/arch/held_formats.h"
#include "model/recipe/optimizer/optimizer.h"
#include "model/recipe/recipe.h"
#include "run/engine/random_inputs.h"
#include "run/engine/stages.h"

namespace lumen::cli {
namespace {

constexpr int kExplainRuns = 5;

struct CompileFlags {
  std::string file, shape, function = "forward", target = "native", emit = "graph", out;
  std::vector<std::string> symbols, formats, config;
  std::string precision = "f32", activations, against;
  bool exact = false, explain = false, check = false, check_family = false, emit_given = false;
};

// Symbol values from "B=1,T=512", or from several options.
graph::Bindings symbol_values(const std::vector<std::string>& texts) {
  graph::Bindings symbols;
  for (const std::string& text : texts) {
    const size_t at = text.find('=');
    char* end = nullptr;
    const long long value = at == std::string::npos ? 0 : std::strtoll(text.c_str() + at + 1, &end, 10);
    if (at == std::string::npos || at == 0 || *end != 0 || value < 1 || value > (1LL << 32)) {
      throw usage_error("--symbols takes NAME=NUMBER, not '{}'", text);
    }
    symbols[text.substr(0, at)] = value;
  }
  return symbols;
}

// Gives symbols without a value small numbers, so that a first look at a graph needs no options.
void complete(graph::Bindings& symbols, const graph::Graph& g) {
  for (graph::ValueId v : g.inputs()) {
    for (const graph::Dim& d : g[v].type.shape) {
      for (const std::string& symbol : d.symbols) symbols.emplace(symbol, symbol == "B" || symbol == "R" ? 1 : 32);
    }
  }
}

graph::Graph graph_of(model::arch::Library& library, const CompileFlags& flags, graph::Bindings& symbols) {
  model::arch::FamilyRef family;
  const lang::File* file = nullptr;
  if (flags.file.ends_with(".lum") && std::filesystem::exists(flags.file)) {
    const auto source = std::make_shared<Source>(Source{flags.file, read_file(flags.file, 16 << 20)});
    // This file replaces the library's file that defines the same names.
    file = &library.replace_model_text(source);
    if (!file->models.empty()) family = library.family(file->models.front().name);
  } else if (flags.file.ends_with(".lum")) {
    throw user_error("{}: no such file", flags.file);
  } else {
    const std::vector<std::string> known = library.family_names();
    if (std::find(known.begin(), known.end(), flags.file) == known.end())
      throw Error(Exit::usage, fmt::format("'{}' is neither a .lum file nor a known family", flags.file),
                  did_you_mean_any(flags.file, known));
    family = library.family(flags.file);
  }
  if (!family) return model::arch::function_graph(library, *file, flags.function);
  const graph::Config values = named_numbers(flags.config);
  const std::vector<std::string> sizes = family->sizes();
  if (!flags.shape.empty() && std::find(sizes.begin(), sizes.end(), flags.shape) == sizes.end())
    throw Error(Exit::usage, fmt::format("--shape {}: {} has no such size", flags.shape, family->name()),
                did_you_mean_any(flags.shape, sizes));
  const std::string size = !flags.shape.empty() ? flags.shape : sizes.empty() ? "" : sizes.front();
  const graph::Config config = family->config(size, values);
  if (flags.function != "train" || family->has_function("train")) return family->function(flags.function, config);
  std::vector<model::arch::Parameter> trained = family->parameters(config);
  std::erase_if(trained, [](const model::arch::Parameter& p) { return p.frozen; });
  const graph::Graph loss = family->function("loss", config);
  complete(symbols, loss);
  return model::recipe::training_step(graph::bind_symbols(loss, symbols), trained,
                                      model::recipe::Optimizer(family->library(), {}));
}

// Runs the graph on random inputs and prints each kernel's plan, predicted time and measured time.
int explain(const Shared& shared, const graph::Graph& g, const run::CompileOptions& options,
            const CompileFlags& flags) {
  Shared here = shared;
  if (flags.target != "native") here.machine = flags.target;
  run::Engine engine = here.engine(true);
  const auto program = engine.compile(g, options);
  note("measuring the machine's ceilings");
  const run::Ceilings ceilings = engine.measure_ceilings();
  run::bind_random_inputs(engine, g, options.symbols, *program);
  program->run();
  program->forget_times();
  for (int i = 0; i < kExplainRuns; ++i) program->run();
  const std::string text =
      fmt::format("{}, {} threads: reading {:.1f} GB/s, f32 {:.0f} GFLOP/s\n", engine.device().machine().name,
                  engine.threads(), ceilings.read_bytes / 1e9, ceilings.f32_flops / 1e9) +
      program->explain(&ceilings) +
      fmt::format("{:.3f} ms for a run in which no kernel is timed apart\n", program->measure(kExplainRuns) * 1e3);
  if (flags.out.empty()) {
    put(text);
  } else {
    write_file_atomic(flags.out, text);
  }
  return 0;
}

// Applies --precision: a scalar type, or a recipe that gives the formats of operands and saved activations.
void take_precision(const model::arch::Library& library, const std::string& precision, run::CompileOptions& options) {
  if (!model::recipe::is_recipe_of_products(library, precision)) {
    options.products = model::recipe::product_type(precision, library.formats());
    return;
  }
  const model::recipe::Recipe r = model::recipe::parse_recipe(library.recipe(precision)->text, precision);
  options.products = model::recipe::product_type(r, library.formats());
  options.recompute.kept = model::recipe::encodable("memory.kept", r.kept, library.formats());
}

int compile(const Shared& shared, const CompileFlags& flags) {
  if (flags.check_family != !flags.against.empty())
    throw usage_error("--check-family compares a family with a recording: it needs --against FOLDER, and --against it");
  if (flags.check_family) return check_family(shared, flags.file, flags.against);
  auto library = model::arch::Library::builtin();
  for (const std::string& folder : shared.format_folders) library->add_format_folder(folder);
  for (const std::string& folder : shared.model_folders) library->add_model_folder(folder);
  const run::Stage stage = run::stage_from_name(flags.emit);
  if (flags.check && flags.emit_given && flags.out.empty())
    throw usage_error("--check prints its report; with --emit it needs a file (--out)");
  run::CompileOptions options;
  options.symbols = symbol_values(flags.symbols);
  graph::Graph g = graph_of(*library, flags, options.symbols);
  if (!flags.activations.empty())
    g = graph::encode_all_inputs(std::move(g), named_format(library->formats(), flags.activations));
  complete(options.symbols, g);
  options.exact = flags.exact;
  take_precision(*library, flags.precision, options);
  for (const std::string& text : flags.formats) {
    const size_t at = text.find('=');
    graph::FormatAssignment a;
    a.what = graph::FormatAssignment::What::stored;
    a.format = named_format(library->formats(), at == std::string::npos ? text : text.substr(at + 1));
    const std::string pattern = at == std::string::npos ? "*" : text.substr(0, at);
    // Vectors stay f32, as in all commands. Inputs of a plain function get a format only when they are named in full.
    const bool named = pattern.find_first_of("*?") == std::string::npos;
    const size_t before = options.assignments.size();
    for (graph::ValueId v : g.inputs()) {
      const graph::Node& n = g[v];
      if ((n.attributes.role != graph::Role::parameter && !named) || n.type.shape.size() < 2 ||
          !model::recipe::matches(pattern, n.attributes.name))
        continue;
      a.value = n.attributes.name;
      options.assignments.push_back(a);
    }
    if (options.assignments.size() == before) {
      std::string inputs;
      for (graph::ValueId v : g.inputs()) inputs += (inputs.empty() ? "" : ", ") + g[v].attributes.name;
      throw Error(Exit::usage, fmt::format("--format {}: no matrix is called '{}'", text, pattern),
                  "inputs: " + inputs.substr(0, 300));
    }
  }
  if (flags.explain) return explain(shared, g, options, flags);
  // With --check, --emit chooses the content of the output file.
  const std::string report = flags.check ? run::check_text(g, options, flags.target) : "";
  const bool stage_wanted = !flags.check || flags.emit_given;
  const std::string text = stage_wanted ? run::stage_text(g, options, flags.target, stage) : report;
  if (flags.check && stage_wanted) put(report);
  if (!flags.out.empty()) {
    write_file_atomic(flags.out, text);
  } else if (stage == run::Stage::object && stage_wanted) {
    put_bytes(text);
  } else {
    put_text(text);
  }
  return 0;
}

}  // namespace

void add_compile(CLI::App& app, Command& command) {
  auto flags = std::make_shared<CompileFlags>();
  CLI::App* sub = app.add_subcommand("compile", "Show the stages of a compilation, from source text to machine code");
  add_settings(*sub, "file", flags->file, "--shape", flags->shape, "--config", flags->config, "--function",
               flags->function, "--symbols", flags->symbols, "--format", flags->formats, "--activations",
               flags->activations, "--target", flags->target);
  auto* emit = add_setting(*sub, "--emit", flags->emit);
  add_setting(*sub, "--out", flags->out);
  auto* explain = add_setting(*sub, "--explain", flags->explain);
  add_setting(*sub, "--check", flags->check)->excludes(explain);
  explain->excludes(emit);
  auto* check_family = add_setting(*sub, "--check-family", flags->check_family);
  for (const char* other : {"--explain", "--check", "--emit", "--out", "--shape", "--function", "--format"})
    check_family->excludes(sub->get_option(other));
  add_setting(*sub, "--against", flags->against);
  add_settings(*sub, "--precision", flags->precision, "--exact", flags->exact);
  sub->footer([] {
    return size_names() +
           "\n\nExamples:\n"
           "  lumen compile model.lum --function step --symbols T=1,S=512 --format " +
           example_format(4.5) +
           " --target native --emit asm\n"
           "  lumen compile --check-family model.lum --against recording\n"
           "  lumen compile model.lum --function train --symbols B=12,T=64 --emit graph";
  });
  add_shared_flags(*sub, command.shared);
  sub->get_option("--machine")->excludes(sub->get_option("--target"));
  sub->callback([flags, emit, &command] {
    flags->emit_given = emit->count() > 0;
    command.action = [flags, shared = command.shared] { return compile(*shared, *flags); };
  });
}

}  // namespace lumen::cli
