// The program as a whole: parsing, and what errors look like.
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <iostream>

#include "base/error.h"
#include "base/log.h"
#include "cli/command.h"
#include "cli/version.h"
#include "run/engine/stages.h"

namespace lumen::cli {
namespace {

std::atomic<bool> stop_requested{false};

extern "C" void on_interrupt(int) {
  if (stop_requested.exchange(true)) std::_Exit(static_cast<int>(Exit::interrupted));
}

// Names of several letters behind one dash, as other programs have them.
constexpr std::pair<std::string_view, const char*> kShortNames[] = {
    {"-ctk", "--cache-type-k"}, {"-ctv", "--cache-type-v"}, {"-md", "--model-draft"},
    {"-np", "--parallel"},      {"-ns", "--sequences"},
};

int print_error(const std::string& message, const std::string& hint, Exit code) {
  const bool color = use_color();
  std::fputs(fmt::format("lumen: {}error:{} {}\n", color ? "\033[1;31m" : "", color ? "\033[0m" : "", message).c_str(),
             stderr);
  if (!hint.empty()) std::fputs(fmt::format("  hint: {}\n", hint).c_str(), stderr);
  return static_cast<int>(code);
}

}  // namespace

const std::atomic<bool>& interrupted() {
  return stop_requested;
}
void catch_interrupts(bool end_reads) {
  struct sigaction action{};
  action.sa_handler = on_interrupt;
  action.sa_flags = end_reads ? 0 : SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
}
void forget_interrupt() {
  stop_requested = false;
}

model::LibraryRef Shared::library() const {
  const auto library = model::Library::builtin();
  for (const std::string& folder : format_folders) library->add_format_folder(folder);
  for (const std::string& folder : model_folders) library->add_model_folder(folder);
  return library;
}

run::Engine Shared::engine(bool timed) const {
  run::Engine::Options options;
  options.cache_folder = cache;
  options.threads = threads;
  options.tune = tune;
  options.libraries = libraries;
  options.device = device;
  options.timed = timed;
  if (machine != "native") options.machine = run::machine_to_run(machine, device);
  return run::Engine(options);
}

void add_shared_flags(CLI::App& app, const std::shared_ptr<Shared>& shared) {
  app.add_option("--formats", shared->format_folders, "Folder with number formats (*.lum) of your own; repeatable")
      ->group("Common")
      ->type_name("DIR");
  app.add_option("--models", shared->model_folders, "Folder with model families (*.lum) and recipes (*.toml)")
      ->group("Common")
      ->type_name("DIR");
  app.add_option("-t,--threads", shared->threads, "Threads; 0 takes all cores this process may use")
      ->group("Common")
      ->check(CLI::Range(0, 4096));
  app.add_option("--device", shared->device, "cpu, cuda[:N], hip[:N], or auto: a GPU where there is one")
      ->group("Common")
      ->capture_default_str()
      ->type_name("DEVICE");
  app.add_option("--machine", shared->machine, "Code for which processor or GPU; see `lumen doctor`")
      ->group("Common")
      ->type_name("NAME");
  app.add_option("--cache", shared->cache, "Folder of compiled kernels; 'off' keeps them in memory")
      ->group("Common")
      ->type_name("DIR");
  app.add_flag("!--no-tune", shared->tune,
               "Keep the cost model's plans; by default heavy kernels try others while they work")
      ->group("Common");
  app.add_flag("--libraries", shared->libraries,
               "Let cuBLASLt or hipBLASLt multiply matrices where that is measured to be faster; rounding differs")
      ->group("Common");
  app.add_flag("-v,--verbose", shared->verbose, "Say more")->group("Common");
  app.add_flag("-q,--quiet", shared->quiet, "Say less")->group("Common");
}

int run_app(int argc, const char* const* argv) {
  CLI::App app("Lumen trains, quantizes and runs language models in any number format.", "lumen");
  app.set_version_flag("--version", fmt::format("lumen {}", kVersion));
  app.require_subcommand(1);
  app.get_formatter()->column_width(34);
  app.footer(
      "Examples:\n"
      "  lumen demo                                    train, round and fine-tune a small model in three minutes\n"
      "  lumen train --shape char -o my-model          a character model on the built-in text\n"
      "  lumen quantize my-model/model.gguf small.gguf TYPE\n"
      "  lumen run -m small.gguf -p \"ROMEO:\" -n 200\n"
      "  lumen format check my_format.lum              kernels and errors of a format of your own\n"
      "Every command has --help. Exit codes: 0 ok, 1 bad data, 2 usage, 3 hardware or memory, 4 numeric guard, 5 "
      "verification\n"
      "failed, 130 Ctrl-C after saving.");
  Command command;
  for (auto* add : {add_demo, add_train, add_run, add_chat, add_tokenize, add_quantize, add_export, add_perplexity,
                    add_embed, add_bench, add_inspect, add_compile, add_format, add_doctor}) {
    add(app, command);
  }
  try {
    // A model of the local Hugging Face cache: -hf USER/REPO means -m hf:USER/REPO.
    std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
    for (std::string& word : words)
      for (const auto& [from, to] : kShortNames)
        if (word == from) word = to;
    for (size_t i = 0; i + 1 < words.size(); ++i) {
      if (words[i] != "-hf" && words[i] != "-hfr" && words[i] != "--hf-repo") continue;
      words[i] = "-m";
      words[i + 1] = "hf:" + words[i + 1];
    }
    std::reverse(words.begin(), words.end());  // as the parser takes them
    app.parse(words);
  } catch (const CLI::CallForHelp&) {
    std::cout << app.help();
    return 0;
  } catch (const CLI::CallForAllHelp&) {
    std::cout << app.help("", CLI::AppFormatMode::All);
    return 0;
  } catch (const CLI::CallForVersion& version) {
    std::cout << version.what() << "\n";
    return 0;
  } catch (const CLI::ParseError& error) {
    const auto subs = app.get_subcommands();
    const std::string of = subs.empty() ? "lumen" : "lumen " + subs.front()->get_name();
    return print_error(error.what(),
                       argc < 2 ? "try `lumen demo`, or `lumen --help`" : fmt::format("see `{} --help`", of),
                       Exit::usage);
  }
  try {
    set_verbosity(Verbosity::normal);
    if (command.shared->verbose) set_verbosity(Verbosity::verbose);
    if (command.shared->quiet) set_verbosity(Verbosity::quiet);
    const int code = command.action();
    std::cout.flush();
    return code;
  } catch (const Error& error) {
    std::cout.flush();
    return print_error(error.what(), error.hint(), error.code());
  } catch (const std::bad_alloc&) {
    return print_error("out of memory", "try a smaller model, batch or context", Exit::hardware);
  } catch (const std::exception& error) {
    return print_error(error.what(), "", Exit::user);
  }
}

}  // namespace lumen::cli
