// The program as a whole: parsing, signals, and how errors are printed.
#include <cxxabi.h>
#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <mutex>
#include <new>
#include <typeinfo>

#include "base/error.h"
#include "base/file/cut.h"
#include "base/file/temporary.h"
#include "base/log.h"
#include "base/messages/log_rank.h"
#include "base/messages/spelling.h"
#include "base/printable.h"
#include "base/threads/team.h"
#include "cli/command.h"
#include "cli/config/config.h"
#include "cli/numbers.h"
#include "cli/other_programs/other_programs.h"
#include "cli/output.h"
#include "cli/paths/paths.h"
#include "cli/run_app.h"
#include "cli/settings/declare.h"
#include "cli/settings/environment.h"
#include "cli/version.h"
#include "run/device/available.h"
#include "run/device/choose/choose.h"
#include "run/engine/stages.h"
#include "run/engine/verify/policy.h"

namespace lumen::cli {
namespace {

std::atomic<bool> stop_requested{false};
std::atomic<int> stop_signal{0};
// Signals at which a command saves its work and ends by itself: bit n for signal n. Any other signal, and a second one,
// end the program at once.
std::atomic<unsigned> expected_signals{0};
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<unsigned>::is_always_lock_free);

thread_local bool runs_as_guest = false;

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};
constexpr int kOfSignals = 128;               // shells add this to a signal's number
constexpr int kMicrosecondsToStop = 700'000;  // grace period of a command that saves nothing

// The number of running commands that save something when they are stopped, and whether a prompt that waits for input
// is interrupted.
std::atomic<int> saving{0};
std::atomic<bool> ends_reads{false};

// Safe in signal handlers.
void say(std::string_view text) {
  if (verbosity() != Verbosity::quiet && !is_secondary_rank()) (void)!::write(STDERR_FILENO, text.data(), text.size());
}

[[noreturn]] void end_by_signal() {
  remove_temporaries();
  ::_exit(kOfSignals + stop_signal);
}

void look_later(int microseconds) {
  const itimerval once{{0, 0}, {0, microseconds}};
  ::setitimer(ITIMER_REAL, &once, nullptr);
}

extern "C" void on_late(int) {
  if (!stop_requested || saving > 0) return;
  if (are_files_moving()) return look_later(kMicrosecondsToStop / 20);
  end_by_signal();
}

extern "C" void on_signal(int number) {
  const int saved = errno;
  stop_signal = number;
  if (!(expected_signals & (1U << number)) || stop_requested.exchange(true)) {
    say("\nlumen: stopped\n");
    end_by_signal();
  }
  if (!ends_reads) {
    say("\nlumen: stopping ..\n");
    look_later(kMicrosecondsToStop);
  }
  errno = saved;
}

// A signal that was ignored when the program started stays ignored (nohup). SIGINT is the exception, because shell
// scripts start background jobs with SIGINT ignored.
void handle_signal(int number, int flags) {
  struct sigaction old{};
  if (number != SIGINT && sigaction(number, nullptr, &old) == 0 && old.sa_handler == SIG_IGN) return;
  struct sigaction action{};
  action.sa_handler = on_signal;
  action.sa_flags = flags;
  sigaction(number, &action, nullptr);
}

void handle_signals() {
  expected_signals = 0;
  ends_reads = false;
  stop_requested = false;
  stop_signal = 0;
  for (const int number : kSignals) handle_signal(number, SA_RESTART);
  // Writing a file past the allowed size (ulimit -f) then fails with EFBIG, which the writing code reports.
  ::signal(SIGXFSZ, SIG_IGN);
  struct sigaction late{};
  late.sa_handler = on_late;
  late.sa_flags = SA_RESTART;
  sigaction(SIGALRM, &late, nullptr);
}

// A function that may not throw (of a library, or a destructor) got no memory: the program ends as where bad_alloc is
// caught. Anything else is a fault of the program. Allocates nothing.
std::terminate_handler usual_terminate = nullptr;
[[noreturn]] void on_terminate() {
  const std::type_info* const type = abi::__cxa_current_exception_type();
  if (!type || *type != typeid(std::bad_alloc)) {
    usual_terminate();
    std::abort();
  }
  constexpr std::string_view kMessage = "lumen: error: out of memory\n  hint: try a smaller model, batch or context\n";
  (void)!::write(STDERR_FILENO, kMessage.data(), kMessage.size());
  remove_temporaries();
  ::_exit(exit_code(Exit::hardware));
}

// The exit code of a command that was interrupted.
int ended_by_signal(int code) {
  return code == exit_code(Exit::interrupted) && stop_signal != 0 ? kOfSignals + stop_signal : code;
}

struct sigaction host_action{};  // the host program's SIGINT action

extern "C" void on_signal_of_host(int number, siginfo_t* info, void* context) {
  stop_requested = true;
  if ((host_action.sa_flags & SA_SIGINFO) != 0)
    host_action.sa_sigaction(number, info, context);
  else if (host_action.sa_handler != SIG_DFL && host_action.sa_handler != SIG_IGN)
    host_action.sa_handler(number);
}

// During its lifetime Ctrl-C asks the command inside a host program to stop. Where the host ignores SIGINT, so does the
// command.
class HostSignals {
 public:
  HostSignals() {
    stop_requested = false;
    sigaction(SIGINT, nullptr, &host_action);
    if ((host_action.sa_flags & SA_SIGINFO) == 0 && host_action.sa_handler == SIG_IGN) return;
    struct sigaction action{};
    action.sa_sigaction = on_signal_of_host;
    action.sa_flags = SA_RESTART | SA_SIGINFO;
    is_set_ = sigaction(SIGINT, &action, nullptr) == 0;
  }
  HostSignals(const HostSignals&) = delete;
  HostSignals& operator=(const HostSignals&) = delete;
  ~HostSignals() {
    if (is_set_) sigaction(SIGINT, &host_action, nullptr);
    stop_requested = false;
  }

 private:
  bool is_set_ = false;
};

// During its lifetime this thread's command runs inside a host program, and its output is collected.
class Guest {
 public:
  explicit Guest(std::string* output) {
    runs_as_guest = true;
    collect_output(output);
  }
  Guest(const Guest&) = delete;
  Guest& operator=(const Guest&) = delete;
  ~Guest() {
    collect_output(nullptr);
    runs_as_guest = false;
  }
};

// Option names of several letters after a single dash, for users of other programs.
constexpr std::pair<std::string_view, const char*> kShortNames[] = {
    {"-ctk", "--cache-type-k"}, {"-ctv", "--cache-type-v"}, {"-md", "--model-draft"},
    {"-np", "--parallel"},      {"-ns", "--sequences"},
};

// Prints an error; file names quoted in the message are made printable. `about`: the files given to the command, where
// the message itself names none of them.
int print_error(const std::string& message, const std::string& hint, Exit code, const std::string& about = "") {
  const bool color = use_color();
  std::fputs(fmt::format("lumen: {}{}error:{} {}\n", rank_prefix(), color ? "\033[1;31m" : "", color ? "\033[0m" : "",
                         printable(message, Lines::kept))
                 .c_str(),
             stderr);
  if (!about.empty()) std::fputs(fmt::format("  files: {}\n", printable(about)).c_str(), stderr);
  if (!hint.empty()) std::fputs(fmt::format("  hint: {}\n", printable(hint, Lines::kept)).c_str(), stderr);
  return exit_code(code);
}

// The most deeply nested command that the words name.
CLI::App& last_command(CLI::App& app) {
  CLI::App* at = &app;
  while (!at->get_subcommands().empty()) at = at->get_subcommands().front();
  return *at;
}

std::string full_name(const CLI::App& command) {
  const CLI::App* above = command.get_parent();
  return above ? full_name(*above) + " " + command.get_name() : command.get_name();
}

std::vector<std::string> names_of_commands(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(sub->get_name());
    names.insert(names.end(), sub->get_aliases().begin(), sub->get_aliases().end());
  }
  return names;
}

Error unknown_command(const CLI::App& above, const std::string& word) {
  const std::string near = did_you_mean_any(word, names_of_commands(above));
  return Error(Exit::usage, fmt::format("'{}' is no command of {}", word, full_name(above)),
               fmt::format("{}`{} --help` lists them", near.empty() ? "" : near + " ", full_name(above)));
}

Error unknown_option(const CLI::App& command, const std::string& word) {
  std::vector<std::string> known;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
    for (const std::string& name : option->get_snames()) known.push_back("-" + name);
  }
  for (const auto& [shorter, longer] : kShortNames)
    if (command.get_option_no_throw(longer)) known.emplace_back(shorter);
  const std::string name = word.substr(0, word.find('='));
  const std::string message = fmt::format("'{}' is no option of {}", name, full_name(command));
  if (const std::string hint = hint_for_other_option(command, name); !hint.empty())
    return Error(Exit::usage, message, hint);
  const std::string near = did_you_mean_any(name, known);
  return Error(Exit::usage, message,
               fmt::format("{}`{} --help` lists them", near.empty() ? "" : near + " ", full_name(command)));
}

// Refuses a missing or unknown command before anything else is checked, even --help.
void require_commands(const CLI::App& app, const std::vector<std::string>& words) {
  const CLI::App* at = &app;
  for (const std::string& word : words) {
    if (at->get_require_subcommand_min() == 0 || word.starts_with('-')) return;
    const std::vector<std::string> names = names_of_commands(*at);
    if (std::find(names.begin(), names.end(), word) == names.end()) throw unknown_command(*at, word);
    at = at->get_subcommand(word);
  }
}

// Refuses an option of another program that the parser would take apart.
void refuse_other_options(const CLI::App& app, const std::vector<std::string>& words) {
  const CLI::App* at = &app;
  for (const std::string& word : words) {
    const auto subs = at->get_subcommands([&](const CLI::App* sub) { return sub->check_name(word); });
    if (subs.empty()) break;
    at = subs.front();
  }
  if (const auto word = other_short_option(*at, words)) throw unknown_option(*at, *word);
}

// Turns the parser's leftover words into an error in our own wording; returns when there are none.
void refuse_leftovers(CLI::App& app) {
  for (const CLI::App* at = &last_command(app); at; at = at->get_parent()) {
    for (const std::string& word : at->remaining())
      if (word.size() > 1 && word.starts_with('-')) throw unknown_option(*at, word);
    for (const std::string& word : at->remaining()) {
      if (!names_of_commands(*at).empty()) throw unknown_command(*at, word);
      throw Error(Exit::usage, fmt::format("'{}' is one argument too many for {}", word, full_name(*at)),
                  fmt::format("see `{} --help`; put several words in quotes", full_name(*at)));
    }
  }
}

}  // namespace

const std::atomic<bool>& interrupted() {
  return stop_requested;
}
bool is_guest() {
  return runs_as_guest;
}
void catch_interrupts(bool end_reads) {
  if (runs_as_guest) return;
  unsigned expected = 1U << SIGINT;
  if (!end_reads) expected |= (1U << SIGTERM) | (1U << SIGHUP);
  expected_signals = expected;
  ends_reads = end_reads;
  handle_signal(SIGINT, end_reads ? 0 : SA_RESTART);
}
void forget_interrupt() {
  stop_requested = false;
}
SavesWhenStopped::SavesWhenStopped() {
  ++saving;
}
SavesWhenStopped::~SavesWhenStopped() {
  if (--saving == 0 && stop_requested && !runs_as_guest) look_later(kMicrosecondsToStop);
}

model::arch::LibraryRef Shared::library() const {
  const auto library = model::arch::Library::builtin();
  for (const std::string& folder : format_folders) library->add_format_folder(folder);
  for (const std::string& folder : model_folders) library->add_model_folder(folder);
  return library;
}

run::Engine Shared::engine(bool timed) const {
  if (!is_device_given && run::has_gpu_node()) {
    static std::once_flag said;
    std::call_once(said, [] { note("this machine has a GPU, which is not used; --device auto takes it"); });
  }
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
  add_setting(app, "--formats", shared->format_folders);
  add_setting(app, "--models", shared->model_folders);
  add_setting(app, "--threads", shared->threads);
  add_setting(app, "--device", shared->device)->each([shared](const std::string&) { shared->is_device_given = true; });
  add_setting(app, "--machine", shared->machine);
  add_setting(app, "--cache", shared->cache);
  add_setting_function<std::string>(app, "--cache-limit", [](const std::string& text) {
    run::set_cache_limit(run::parse_amount(text, "--cache-limit"));
  });
  add_setting(app, "--no-tune", shared->tune);
  add_setting(app, "--libraries", shared->libraries);
  add_setting_function<std::string>(app, "--try", [](const std::string& when) {
    run::set_launch_trials(run::launch_trials_from_name(when));
  })->check(CLI::IsMember(run::launch_trials_names()));
  auto* more = add_setting(app, "--verbose", shared->verbose);
  add_setting(app, "--quiet", shared->quiet)->excludes(more);
}

static std::string version_text() {
  const std::string commit = *kCommit == '\0' ? "" : fmt::format("commit    {}\n", kCommit);
  return fmt::format("lumen {}\n{}build     {}\ncompiler  {}", kVersion, commit, kBuild, run::compiler_version());
}

std::unique_ptr<CLI::App> make_app(Command& command) {
  auto made =
      std::make_unique<CLI::App>("Lumen trains, quantizes and runs language models in any number format.", "lumen");
  CLI::App& app = *made;
  app.set_version_flag("--version", version_text());
  app.require_subcommand(1);
  app.get_formatter()->column_width(34);
  app.footer(
      "Examples:\n"
      "  lumen demo                                    train, round and fine-tune a small model in three minutes\n"
      "  lumen train --shape char -o my-model          a character model on the built-in text\n"
      "  lumen quantize my-model/model.gguf small.gguf TYPE\n"
      "  lumen run -m small.gguf -p \"ROMEO:\" -n 200\n"
      "  lumen serve -m small.gguf                     the same for other programs, over HTTP\n"
      "  lumen format check my_format.lum              kernels and errors of a format of your own\n"
      "Every command has --help. Exit codes: 0 ok, 1 bad data, 2 usage, 3 hardware or memory, 4 numeric guard, 5 "
      "verification\n"
      "failed, 130 Ctrl-C after saving (SIGTERM 143, SIGHUP 129).");
  for (auto* add : {add_demo,
                    add_train,
                    add_data,
                    add_run,
                    add_chat,
                    add_serve,
                    add_tokenize,
                    add_imatrix,
                    add_quantize,
                    add_equivalent_transform,
                    add_low_rank_correction,
                    add_recovery_training,
                    add_export,
                    add_merge,
                    add_verify,
                    add_report,
                    add_eval,
                    add_embed,
                    add_perplexity,
                    add_compare,
                    add_bench,
                    add_inspect,
                    add_compile,
                    add_format,
                    add_doctor}) {
    add(app, command);
  }
  for (const AddCommand add : application_commands()) add(app, command);
  for (auto* add : {add_pull, add_list, add_rm, add_ps, add_cache, add_completion, add_manual}) add(app, command);
  guard_numbers(app);
  return made;
}

namespace {

// The command that the words, in reverse, begin with.
CLI::App& named_command(CLI::App& app, const std::vector<std::string>& words) {
  CLI::App* at = &app;
  for (auto word = words.rbegin(); word != words.rend(); ++word) {
    const std::vector<std::string> names = names_of_commands(*at);
    if (std::ranges::find(names, *word) == names.end()) break;
    at = at->get_subcommand(*word);
  }
  return *at;
}

// The same command of another parser.
CLI::App& same_command(CLI::App& app, const CLI::App& command) {
  const CLI::App* const above = command.get_parent();
  return above ? *same_command(app, *above).get_subcommand(command.get_name()) : app;
}

// "bench", "bench kernels", ..
std::vector<std::string> full_names_of_commands(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(command_of(*sub));
    const std::vector<std::string> inner = full_names_of_commands(*sub);
    names.insert(names.end(), inner.begin(), inner.end());
  }
  return names;
}

// The user's configuration; its names of models hold from now on. Help is printed without it, so that a mistake in the
// file hides no help.
Config read_config(const CLI::App& app, const std::vector<std::string>& words) {
  for (const std::string& word : words)
    if (word == "--help" || word == "-h" || word == "--help-all" || word == "--version") return {};
  Config config = Config::of_user(full_names_of_commands(app));
  model::file::set_local_names(config.names());
  return config;
}

// Gives options that the command line leaves out the values of their environment variables, and then of the
// configuration. `words` are in reverse. A first parse, by a parser of its own, finds out which options the command
// line gives.
std::vector<TakenValue> take_other_values(CLI::App& app, std::vector<std::string> words) {
  const Config config = read_config(app, words);
  const CLI::App& named = named_command(app, words);
  if (!has_variables(named) && !config.has_values_for(command_of(named))) return {};
  Command unused;
  const auto first = make_app(unused);
  try {
    first->parse(words);
  } catch (const CLI::RequiredError&) {  // the environment or the configuration may give it
  } catch (const CLI::RequiresError&) {
  } catch (const CLI::ExcludesError&) {
  } catch (const CLI::ParseError&) {
    return {};              // help is wanted, or the second parse reports the mistake
  } catch (const Error&) {  // likewise
  }
  const CLI::App& given = last_command(*first);
  for (const CLI::App* at = &given; at; at = at->get_parent())
    if (!at->remaining().empty()) return {};  // the second parse reports them
  CLI::App& command = same_command(app, given);
  std::vector<TakenValue> out = take_environment(command, given, usage_text);
  const auto more = take_config(command, given, config.values_for(command_of(command)), usage_text);
  out.insert(out.end(), more.begin(), more.end());
  return out;
}

std::string source_of(const TakenValue& one) {
  return (one.source == TakenValue::Source::environment ? "the environment variable " : "") + one.place;
}

// An error about the command's options; its hint names the variables that gave options which the message names.
Error with_variables(const Error& error, const std::vector<TakenValue>& values) {
  std::string hint = error.hint();
  for (const TakenValue& one : values)
    if (std::string_view(error.what()).find(one.option) != std::string_view::npos)
      hint += fmt::format("{}{} is from {}", hint.empty() ? "" : "; ", one.option, source_of(one));
  return Error(error.code(), error.what(), hint);
}

// Parses the words into the command; false when they asked for help or the version, which this function prints.
bool parse(CLI::App& app, std::vector<std::string> words, std::vector<TakenValue>* taken) {
  const bool nothing = words.empty();
  for (std::string& word : words)
    for (const auto& [from, to] : kShortNames)
      if (word == from) word = to;
  // A model of the local Hugging Face cache: -hf USER/REPO means -m hf:USER/REPO.
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    if (words[i] != "-hf" && words[i] != "-hfr" && words[i] != "--hf-repo") continue;
    words[i] = "-m";
    words[i + 1] = "hf:" + words[i + 1];
  }
  require_commands(app, words);
  refuse_other_options(app, words);
  std::reverse(words.begin(), words.end());  // the parser expects them in reverse
  *taken = take_other_values(app, words);
  try {
    app.parse(words);
    return true;
  } catch (const CLI::CallForHelp&) {
    const CLI::App& asked = last_command(app);
    if (!names_of_commands(asked).empty() && !asked.remaining().empty()) refuse_leftovers(app);
    put(app.help());
  } catch (const CLI::CallForAllHelp&) {
    put(app.help("", CLI::AppFormatMode::All));
  } catch (const CLI::CallForVersion& version) {
    put(fmt::format("{}\n", version.what()));
  } catch (const CLI::ParseError& error) {
    refuse_leftovers(app);
    throw with_variables(Error(Exit::usage, usage_text(error),
                               nothing ? "try `lumen demo`, or `lumen --help`"
                                       : fmt::format("see `{} --help`", full_name(last_command(app)))),
                         *taken);
  } catch (const Error& error) {
    throw with_variables(error, *taken);
  }
  return false;
}

// The existing files and folders among the command's option values.
std::vector<std::string> files_given(const CLI::App& command) {
  std::vector<std::string> files;
  for (const CLI::Option* option : command.get_options())
    for (const std::string& value : option->results())
      for (const std::string& name : {value, value.substr(0, value.rfind('=')), value.substr(0, value.rfind(':'))}) {
        std::error_code failure;
        if (name.empty() || !std::filesystem::exists(name, failure)) continue;
        files.push_back(name);
        break;
      }
  return files;
}

// Those of the files that `message` does not name yet; a path counts as named by its last component.
std::string not_named(const std::vector<std::string>& files, const std::string& message) {
  std::string list;
  for (const std::string& file : files) {
    std::filesystem::path path = file;
    if (!path.has_filename()) path = path.parent_path();
    if (message.find(path.filename().string()) != std::string::npos) return {};
    list += (list.empty() ? "'" : ", '") + file + "'";
  }
  return list;
}

int run_words(const std::vector<std::string>& words, std::vector<std::string>* files) {
  Command command;
  const auto app = make_app(command);
  std::vector<TakenValue> taken;
  if (!parse(*app, words, &taken)) return exit_code(Exit::ok);
  *files = files_given(last_command(*app));
  limit_loop_threads(command.shared->threads);
  set_verbosity(Verbosity::normal);
  if (command.shared->verbose) set_verbosity(Verbosity::verbose);
  if (command.shared->quiet) set_verbosity(Verbosity::quiet);
  for (const TakenValue& one : taken) verbose(fmt::format("{} is from {}", one.option, source_of(one)));
  if (!runs_as_guest) handle_signals();
  const PathGuard guard(last_command(*app));
  int code = 0;
  try {
    code = ended_by_signal(command.action());
  } catch (const Error& error) {
    require_whole_files(Look::size);  // the error may come from zeros read after a file was truncated
    if (error.code() == Exit::usage) throw with_variables(error, taken);
    throw;
  }
  require_whole_files(Look::size);
  finish_output();
  return code;
}

// Returns the result of `work`, or prints its error and returns the error's code. `files`: the files given to the
// command. A template, because std::function may allocate outside this try block.
template <class Work>
int with_errors_told(const Work& work, const std::vector<std::string>& files) {
  try {
    return work();
  } catch (const ClosedOutput&) {
    return exit_code(Exit::user);  // quietly: the reader closed the pipe on purpose
  } catch (const Error& error) {
    std::fflush(stdout);
    return print_error(error.what(), error.hint(), error.code(),
                       error.code() == Exit::usage ? "" : not_named(files, error.what()));
  } catch (const std::bad_alloc&) {
    return print_error("out of memory", "try a smaller model, batch or context", Exit::hardware, not_named(files, ""));
  } catch (const std::filesystem::filesystem_error& error) {
    const std::string about = fmt::format("cannot use '{}': {}", error.path1().string(), error.code().message());
    return print_error(about, "", Exit::user, not_named(files, about));
  } catch (const std::system_error& error) {
    return print_error(error.code().message(), "the system refused it", Exit::hardware, not_named(files, ""));
  } catch (const std::exception& error) {
    verbose(fmt::format("internal error: {}", error.what()));
    return print_error("an internal error of the program", "please report it, with the output of the command with -v",
                       Exit::user, not_named(files, ""));
  }
}

}  // namespace

int run_app(int argc, const char* const* argv) {
  usual_terminate = std::set_terminate(on_terminate);
  std::vector<std::string> files;
  return with_errors_told([&] { return run_words({argv + std::min(argc, 1), argv + argc}, &files); }, files);
}

int run_in_process(const std::vector<std::string>& words, std::string* output) {
  const Guest guest(output);
  std::vector<std::string> files;
  try {
    return run_words(words, &files);
  } catch (const Error& error) {
    const std::string about = error.code() == Exit::usage ? "" : not_named(files, error.what());
    if (about.empty()) throw;
    throw Error(error.code(), fmt::format("{} (files: {})", error.what(), about), error.hint());
  }
}

int run_command(const std::vector<std::string>& words, std::string* output) {
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  const HostSignals signals;
  return run_in_process(words, output);
}

int report_errors(const std::function<int()>& work) {
  return with_errors_told(
      [&] {
        const int code = ended_by_signal(work());
        finish_output();
        return code;
      },
      {});
}

}  // namespace lumen::cli
