// lumen serve -m MODEL
#include "cli/serve/serve.h"

#include <chrono>
#include <deque>
#include <filesystem>
#include <set>
#include <thread>

#include "base/error.h"
#include "base/file/cut.h"
#include "base/file/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/stopwatch.h"
#include "base/threads/threads.h"
#include "cli/adapters.h"
#include "cli/command.h"
#include "cli/infer/drafts.h"
#include "cli/infer/invariance.h"
#include "cli/infer/mapping.h"
#include "cli/names.h"
#include "cli/numbers.h"
#include "cli/output.h"
#include "cli/serve/http.h"
#include "cli/serve/routes.h"
#include "cli/servers/servers.h"
#include "cli/settings/declare.h"
#include "cli/version.h"
#include "model/arch/checkpoint/read.h"
#include "model/infer/session/forecast.h"
#include "model/serve/serve.h"
#include "model/templates/templates.h"

namespace lumen::cli {
namespace {

constexpr int64_t kUsualText = 4096,
                  kUsualShare = 1024;  // default tokens of the cache: for one sequence, and per parallel sequence
constexpr size_t kUsualBody = size_t{8} << 20,
                 kBodyWithPictures = size_t{32} << 20;  // bytes of a request, without --body
constexpr double kFarewellSeconds = 5;                  // time for the last answers to be sent

struct PictureFlags {
  bool is_on = true;
  std::string mmproj;
  std::vector<std::string> folders;
  std::string urls = "off", size = "20M";
  model::serve::PictureRules rules;
};

struct ServeFlags {
  std::vector<std::string> models, named_adapters, keys, aliases;
  OriginRules origins;
  std::string prefix_folder, prefix_size = "4G";
  std::string key_file, host = "127.0.0.1", certificate, key, chat_template, pooling, body;
  int port = 8080;
  model::serve::SchedulerOptions scheduler;
  HttpLimits limits;
  CacheTypes cache;
  PictureFlags pictures;
  AdapterFlags adapters;
  InvarianceFlag invariance;
  Mapping mapping;
  DraftFlags draft;
  int64_t most_tokens = 0, most_outputs = 64;
  double drain = 30, client_rate = 0;
  bool log_json = false, strict = false;
};

// Splits NAME=FILE; a plain file name also gives the model name.
std::pair<std::string, std::string> name_and_file(const std::string& given) {
  std::error_code failure;
  const size_t sign = given.find('=');
  if (sign != std::string::npos && sign > 0 && !std::filesystem::exists(given, failure))
    return {given.substr(0, sign), given.substr(sign + 1)};
  std::filesystem::path path = given;
  if (!path.has_filename()) path = path.parent_path();
  return {path.extension() == ".gguf" ? path.stem().string() : path.filename().string(), given};
}

// The names of --alias, which are separated by commas.
std::vector<std::string> names_in(const std::vector<std::string>& given) {
  std::vector<std::string> out;
  for (const std::string& list : given) {
    for (size_t at = 0; at <= list.size();) {
      const size_t end = std::min(list.find(',', at), list.size());
      out.push_back(list.substr(at, end - at));
      if (out.back().empty()) throw usage_error("an empty name in --alias {}", list);
      at = end + 1;
    }
  }
  return out;
}

model::serve::ModelFacts facts_of(const model::arch::Model& model, const std::string& file) {
  model::serve::ModelFacts out;
  std::filesystem::path path = file;
  if (!path.has_filename()) path = path.parent_path();
  out.file = path.filename().string();  // without its folder, which is no concern of clients
  out.family = model.family->name();
  out.parameters = model.weight_count();
  out.bytes = model.weight_bytes();
  std::map<std::string, int64_t> bytes;  // by format
  for (const auto& [name, weight] : model.weights)
    bytes[weight.is_f32() ? "f32" : weight.type.element.format->name] += std::ssize(weight.bytes);
  const auto most =
      std::max_element(bytes.begin(), bytes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most != bytes.end()) out.format = most->first;
  std::error_code failure;
  const auto written = std::filesystem::last_write_time(path, failure);
  if (!failure)
    out.modified =
        std::chrono::duration_cast<std::chrono::seconds>(std::chrono::file_clock::to_sys(written).time_since_epoch())
            .count();
  const std::string about = fmt::format("{} {} {}", file, out.bytes, out.modified);
  out.digest = hash_bytes(about.data(), about.size()).hex();
  const std::string again = out.digest + about;
  out.digest += hash_bytes(again.data(), again.size()).hex();
  return out;
}

// A loaded model with its scheduler, and the names it is served under, each with one of the sets of adapters.
struct Unit {
  template <typename Adapters>
  Unit(run::Engine& engine, const model::arch::Model& model, const Adapters& adapters,
       const model::serve::SchedulerOptions& options)
      : loaded(engine, model, adapters), scheduler(ready(loaded, options), options) {}

  static model::infer::LoadedModel& ready(model::infer::LoadedModel& loaded,
                                          const model::serve::SchedulerOptions& options) {
    if (options.tower) loaded.read_pictures();
    return loaded;
  }

  model::infer::LoadedModel loaded;
  model::serve::Scheduler scheduler;
  std::deque<model::serve::ServedModel> served;
};

// A model, its adapters, and the thread that runs them.
class Host {
 public:
  Host(const Shared& shared, const model::arch::LibraryRef& library, const ServeFlags& flags, const std::string& name,
       const std::string& file, const model::serve::PictureSource& pictures)
      : model_(flags.mapping.read(shared, library, file)), engine_(shared.engine()), pictures_(pictures) {
    model::serve::SchedulerOptions options = options_of(flags, *library, file);
    flags.invariance.choose(engine_, &options.session);
    if (flags.pictures.is_on)
      take_tower(library, flags.pictures.mmproj.empty() ? file : flags.pictures.mmproj, &options);
    // A GPU holds a copy of the weights, so only the parts of the file that were read for the copy must be intact.
    const Look look = engine_.device().reads_host_memory() ? Look::size : Look::touched;
    options.require_whole = [this, look] { files_.require_whole(look); };
    draft_.emplace(flags.draft, library, engine_, model_);
    options.draft = draft_->many(flags.scheduler.draft.most);
    std::vector<std::pair<std::string, AdapterFlags>> all = {{name, flags.adapters}};
    for (const std::string& given : flags.named_adapters) {
      const auto [adapter, path] = name_and_file(given);
      all.emplace_back(adapter, flags.adapters);
      all.back().second.plain.push_back(path);
    }
    name_ = name;
    facts_ = facts_of(model_, file);
    if (const std::vector<std::string> names = names_in(flags.aliases); !names.empty())
      aliases_.assign(names.begin() + 1, names.end());
    for (const auto& [served, adapters] : all) take_chat(flags, served, adapters);
    std::vector<std::string> names;
    std::vector<model::arch::AdapterSet> sets;  // sets that share a batch
    const auto add = [&](const std::string& served, const AdapterFlags& adapters) {
      model::arch::AdapterSet set = adapters.read(model_);
      if (!flags.named_adapters.empty() && model::arch::can_differ(set)) {
        names.push_back(served);
        sets.push_back(std::move(set));
        return;
      }
      if (!flags.named_adapters.empty())
        note(fmt::format("{} has whole weights of an adapter: its sequences share no step with others", served));
      units_.push_back(
          std::make_unique<Unit>(engine_, model_, std::span<const model::arch::ScaledAdapter>(set), options));
      serve_as(flags, served, *units_.back());
    };
    for (const auto& [served, adapters] : all) add(served, adapters);
    if (!sets.empty()) {
      units_.push_back(
          std::make_unique<Unit>(engine_, model_, std::span<const model::arch::AdapterSet>(sets), options));
      for (const std::string& served : names) serve_as(flags, served, *units_.back());
    }
    require_whole_files(Look::size);
    files_.take_all();
  }
  ~Host() { end(); }

  const std::vector<std::unique_ptr<Unit>>& units() const { return units_; }
  bool reads_pictures() const { return tower_.has_value(); }
  void drain() {
    for (const auto& unit : units_) unit->scheduler.drain();
  }
  void start() {
    thread_ = Thread("to serve a model in", [this] {
      std::vector<model::serve::Scheduler*> all;
      for (const auto& unit : units_) all.push_back(&unit->scheduler);
      try {
        model::serve::Scheduler::run_in_turn(all, [this] { return !is_stopped_; });
      } catch (...) {
        failure_ = std::current_exception();
      }
      is_over_ = true;
    });
  }
  bool is_over() const { return is_over_; }
  // Stops the thread and rethrows the exception that ended it.
  void end() {
    is_stopped_ = true;
    thread_.join();
  }
  void rethrow() const {
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  void take_tower(const model::arch::LibraryRef& library, const std::string& file,
                  model::serve::SchedulerOptions* options) {
    // A model without a generating part, or without steps with pictures, serves what it has.
    if (!model_.family->has_function("step_many_seeing")) return;
    std::optional<model::arch::Model> tower = model::arch::read_tower(library, file);
    if (!tower) return;
    tower_.emplace(engine_, std::move(*tower), options->session.exact);
    options->tower = &*tower_;
  }

  // Chooses the chat template of the model served as `name`. Its end tokens end all outputs of the unit.
  void take_chat(const ServeFlags& flags, const std::string& name, const AdapterFlags& adapters) {
    const bool carries_none = model_.tokenizer->chat_template().empty();
    const model::templates::ChosenTemplate& chosen =
        chats_.emplace(name, choose_chat(flags.chat_template, adapters, *model_.tokenizer)).first->second;
    if (chats_.size() == 1 && flags.chat_template.empty() && carries_none && chosen.name == "plain")
      note(fmt::format("{} carries no chat template; 'plain' is used (see --chat-template)", name));
    model_.tokenizer =
        model_.tokenizer->with_ends(model::templates::with_chat(*model_.tokenizer, chosen).end_of_generation());
  }

  void serve_as(const ServeFlags& flags, const std::string& name, Unit& unit) {
    const model::templates::ChosenTemplate& chosen = chats_.at(name);
    const int64_t vocabulary = unit.loaded.model().integer("vocab");  // an adapter may have changed it
    model::serve::ServedModel& served =
        unit.served.emplace_back(name, model::templates::with_chat(*model_.tokenizer, chosen), vocabulary);
    served.set = std::ssize(unit.served) - 1;
    served.facts = facts_;
    if (name == name_) served.aliases = aliases_;
    served.longest = unit.scheduler.longest();
    served.longest_read = unit.scheduler.longest_read();
    served.scores_pairs = unit.scheduler.scores_pairs();
    served.most_tokens = flags.most_tokens;
    served.has_draft = draft_->many(1).is_on();
    served.most_outputs = std::min(flags.most_outputs, flags.scheduler.queue + flags.scheduler.parallel);
    served.is_strict = flags.strict;
    if (tower_) served.pictures = model::serve::ServedPictures{&*tower_, &pictures_};
    if (served.longest == 0) return;
    served.chat.emplace(served.tokenizer, chosen.parse());
    served.chat_stops = chosen.stops;
    served.calls = model::serve::learn_call_form(*served.chat);
    (void)served.traits();
  }

  model::serve::SchedulerOptions options_of(const ServeFlags& flags, const model::arch::Library& library,
                                            const std::string& file) const {
    if (!model_.tokenizer) throw user_error("{} has no tokenizer", file);
    model::serve::SchedulerOptions options = flags.scheduler;
    flags.cache.choose(library, &options.session);
    const int64_t context = model_.integer("context");
    if (options.session.context == 0)
      options.session.context = std::max(std::min(context, kUsualText), kUsualShare * options.parallel);
    const auto own = model::infer::pooling_of(model_, file);
    options.pooling = own.value_or(model::infer::Pooling::mean);
    if (!flags.pooling.empty())
      options.pooling = flags.pooling == "cls"    ? model::infer::Pooling::first
                        : flags.pooling == "last" ? model::infer::Pooling::last
                                                  : model::infer::Pooling::mean;
    if (options.pooling == model::infer::Pooling::none) options.pooling = model::infer::Pooling::mean;
    return options;
  }

  model::arch::Model model_;
  std::string name_;                  // of the model without adapters
  std::vector<std::string> aliases_;  // further names of it
  model::serve::ModelFacts facts_;
  std::map<std::string, model::templates::ChosenTemplate> chats_;  // by served name
  FileWatch files_;  // The files of the model, its draft and its adapters. When one is truncated, other models go on.
  run::Engine engine_;
  const model::serve::PictureSource& pictures_;
  std::optional<model::infer::Tower> tower_;
  std::optional<DraftChoice> draft_;
  std::vector<std::unique_ptr<Unit>> units_;
  Thread thread_;
  std::atomic<bool> is_stopped_{false}, is_over_{false};
  std::exception_ptr failure_;
};

std::vector<std::string> keys_of(const ServeFlags& flags) {
  std::vector<std::string> keys = flags.keys;
  if (!flags.key_file.empty()) {
    const std::string text = read_file(flags.key_file, 1 << 20);
    for (size_t at = 0; at < text.size();) {
      const size_t end = std::min(text.find('\n', at), text.size());
      std::string line = text.substr(at, end - at);
      if (line.ends_with('\r')) line.pop_back();
      if (!line.empty()) keys.push_back(std::move(line));
      at = end + 1;
    }
    if (keys.empty()) throw user_error("{}: no keys", flags.key_file);
  }
  for (const std::string& key : keys)
    if (key.empty()) throw usage_error("an empty --api-key");
  return keys;
}

void check_flags(ServeFlags& flags) {
  if (flags.certificate.empty() != flags.key.empty()) throw usage_error("--tls-cert and --tls-key go together");
  const bool has_adapters =
      !(flags.adapters.plain.empty() && flags.adapters.scaled.empty() && flags.named_adapters.empty());
  if (flags.models.size() > 1 && !flags.draft.model.empty())
    throw usage_error("a draft model is for one model; --lookup is for all");
  if (flags.models.size() > 1 && !flags.pictures.mmproj.empty()) throw usage_error("--mmproj is for one model");
  if (flags.models.size() > 1 && has_adapters) throw usage_error("adapters are for one model");
  if (flags.models.size() > 1 && !flags.aliases.empty())
    throw usage_error("--alias is for one model; NAME=FILE names several");
  std::set<std::string> names;
  const auto take_name = [&](const std::string& name) {
    if (!names.insert(name).second) throw usage_error("two models are called {}; NAME=FILE names them", name);
  };
  for (const std::string& name : names_in(flags.aliases)) take_name(name);
  if (flags.aliases.empty())
    for (const std::string& given : flags.models) take_name(name_and_file(given).first);
  for (const std::string& given : flags.named_adapters) take_name(name_and_file(given).first);
  flags.origins.is_local = is_loopback(flags.host);
  if (!flags.body.empty()) {
    flags.limits.body = size_t(size_of(flags.body));
    if (flags.limits.body < 1024 || flags.limits.body > size_t{1} << 30) throw usage_error("--body takes 1K to 1G");
  }
  model::serve::PictureRules& rules = flags.pictures.rules;
  rules.urls = flags.pictures.urls == "any"  ? model::serve::PictureUrls::any
               : flags.pictures.urls == "on" ? model::serve::PictureUrls::on
                                             : model::serve::PictureUrls::off;
  rules.folders.assign(flags.pictures.folders.begin(), flags.pictures.folders.end());
  rules.most_bytes = uint64_t(size_of(flags.pictures.size));
  if (rules.most_bytes < 1024 || rules.most_bytes > uint64_t{1} << 30) throw usage_error("--image-size takes 1K to 1G");
  flags.limits.write = flags.limits.idle = flags.limits.read;
}

// Waits for a signal or the failure of a model, then lets running requests finish for up to `seconds`.
void wait_and_drain(std::vector<std::unique_ptr<Host>>& hosts, Routes& routes, double seconds) {
  const auto pause = [] { std::this_thread::sleep_for(std::chrono::milliseconds(20)); };
  const auto any_over = [&] {
    return std::any_of(hosts.begin(), hosts.end(), [](const auto& host) { return host->is_over(); });
  };
  while (!interrupted() && !any_over()) pause();
  routes.drain();
  for (const auto& host : hosts) host->drain();
  note(fmt::format("shutting down; requests have {:.0f} s", seconds));
  const Stopwatch watch;
  const auto all_over = [&] {
    return std::all_of(hosts.begin(), hosts.end(), [](const auto& host) { return host->is_over(); });
  };
  while (!all_over() && watch.seconds() < seconds) pause();
  for (const auto& host : hosts) host->end();
}

// The version and a hash of the executable, because stored prefixes are valid only for the program that computed them.
std::string revision() {
  try {
    const MappedFile self("/proc/self/exe");
    return fmt::format("{} {}", kVersion, hash_bytes(self.bytes().data(), self.bytes().size()).hex());
  } catch (const Error&) {
    return kVersion;
  }
}

int serve(const Shared& shared, ServeFlags flags) {
  check_flags(flags);
  if (!flags.prefix_folder.empty())
    flags.scheduler.prefixes =
        std::make_shared<model::infer::PrefixFiles>(flags.prefix_folder, size_of(flags.prefix_size), revision());
  const std::vector<std::string> keys = keys_of(flags);
  const model::arch::LibraryRef library = shared.library();
  const model::serve::PictureSource pictures(flags.pictures.rules);
  std::vector<std::unique_ptr<Host>> hosts;
  std::vector<Routes::Entry> entries;
  std::string names;
  std::vector<std::string> served_names;
  for (const std::string& given : flags.models) {
    auto [name, file] = name_and_file(given);
    if (!flags.aliases.empty()) name = names_in(flags.aliases)[0];
    hosts.push_back(std::make_unique<Host>(shared, library, flags, name, file, pictures));
    for (const auto& unit : hosts.back()->units()) {
      for (const model::serve::ServedModel& served : unit->served) {
        entries.push_back({&served, &unit->scheduler});
        names += (names.empty() ? "" : ", ") + served.name;
        served_names.push_back(served.name);
      }
    }
  }
  if (flags.body.empty()) {
    const bool reads = std::any_of(hosts.begin(), hosts.end(), [](const auto& host) { return host->reads_pictures(); });
    flags.limits.body = reads ? kBodyWithPictures : kUsualBody;
  }
  Routes routes(entries, {keys, flags.log_json, flags.scheduler.prefixes, flags.client_rate, flags.origins,
                          flags.scheduler.parallel, flags.strict});
  HttpServer http(flags.host, flags.port, flags.certificate, flags.key, flags.limits,
                  {[&](const HttpAsk& ask) { return routes.answer(ask); },
                   [&](int status, const std::string& message) { return routes.refusal(status, message); }});
  if (!flags.origins.is_local && keys.empty())
    warn(fmt::format("every client that can reach {}:{} may use this server: no --api-key was given", flags.host,
                     http.port()));
  catch_interrupts();
  const SavesWhenStopped answers;  // running requests may finish
  for (const auto& host : hosts) host->start();
  http.start();
  const ServerRecord record({0, 0, flags.host, http.port(), !flags.certificate.empty(), served_names});
  const std::string address = flags.host.find(':') == std::string::npos ? flags.host : "[" + flags.host + "]";
  put(fmt::format("listening at {}://{}:{} | {}\n", flags.certificate.empty() ? "http" : "https", address, http.port(),
                  names));
  finish_output();
  wait_and_drain(hosts, routes, flags.drain);
  http.close(kFarewellSeconds);
  for (const auto& host : hosts) host->rethrow();
  return exit_code(Exit::interrupted);
}

void add_http_flags(CLI::App& sub, ServeFlags& flags) {
  add_setting(sub, "--host", flags.host);
  add_setting(sub, "--port", flags.port);
  add_setting(sub, "--api-key", flags.keys);
  add_setting(sub, "--api-key-file", flags.key_file);
  add_setting(sub, "--allow-host", flags.origins.hosts);
  add_setting(sub, "--cors", flags.origins.origins);
  add_setting(sub, "--tls-cert", flags.certificate);
  add_setting(sub, "--tls-key", flags.key);
  add_setting(sub, "--connections", flags.limits.connections);
  add_setting(sub, "--client-connections", flags.limits.client_connections);
  add_setting(sub, "--client-rate", flags.client_rate);
  add_setting(sub, "--body", flags.body);
  add_setting(sub, "--timeout", flags.limits.read);
  add_setting(sub, "--drain", flags.drain);
  add_setting(sub, "--log-json", flags.log_json);
  add_setting(sub, "--strict", flags.strict);
}

void add_model_flags(CLI::App& sub, ServeFlags& flags) {
  model::serve::SchedulerOptions& s = flags.scheduler;
  add_setting(sub, "--parallel", s.parallel)->check(whole(1, model::infer::kMostSequencesAtOnce));
  add_setting(sub, "--queue", s.queue);
  add_setting(sub, "--keep-sequences", s.kept);
  add_setting(sub, "--prefix-cache", flags.prefix_folder);
  add_setting(sub, "--prefix-cache-size", flags.prefix_size);
  add_setting(sub, "--ctx-size", s.session.context);
  add_setting(sub, "--batch-size", s.session.chunk);
  flags.cache.add_flags(sub);
  add_setting(sub, "--exact", s.session.exact);
  flags.invariance.add_to(sub);
  add_narrow_flag(sub, &s.session.narrow);
  add_setting(sub, "--max-tokens", flags.most_tokens);
  add_setting(sub, "--max-n", flags.most_outputs);
  add_setting(sub, "--seconds", s.seconds);
  add_setting(sub, "--chat-template", flags.chat_template);
  add_setting(sub, "--pooling", flags.pooling);
  add_setting(sub, "--pictures", flags.pictures.is_on);
  add_setting(sub, "--mmproj", flags.pictures.mmproj);
  add_setting(sub, "--media-path", flags.pictures.folders);
  add_setting(sub, "--image-urls", flags.pictures.urls);
  add_setting(sub, "--max-images", flags.pictures.rules.most);
  add_setting(sub, "--image-size", flags.pictures.size);
  add_setting(sub, "--image-pixels", flags.pictures.rules.most_pixels);
  add_setting(sub, "--alias", flags.aliases);
  flags.draft.add_flags(sub, s.draft.most);
  flags.adapters.add_flags(sub);
  flags.mapping.add_flags(sub);
  add_setting(sub, "--adapter", flags.named_adapters);
}

}  // namespace

void add_serve(CLI::App& app, Command& command) {
  auto flags = std::make_shared<ServeFlags>();
  CLI::App* sub =
      app.add_subcommand("serve", "Serve models over HTTP, with the APIs of OpenAI, Anthropic, Ollama and others")
          ->alias("server");
  add_setting(*sub, "--model", flags->models);
  add_http_flags(*sub, *flags);
  add_model_flags(*sub, *flags);
  sub->footer(
      "Examples:\n"
      "  lumen serve -m model.gguf\n"
      "  lumen serve -m small=small.gguf -m large=large.gguf --port 8000 --api-key-file keys.txt\n"
      "  lumen serve -m model.gguf --host 0.0.0.0 --tls-cert cert.pem --tls-key key.pem --api-key SECRET\n"
      "Paths: POST /v1/chat/completions /v1/completions /v1/responses /v1/messages /v1/embeddings /v1/rerank "
      "/v1/score /completion /infill /apply-template /tokenize /detokenize, GET / (a page to chat with) /v1/models "
      "/props /slots /health /metrics, and Ollama's /api/chat /api/generate /api/embed /api/tags /api/show /api/ps");
  add_shared_flags(*sub, command.shared);
  sub->callback(
      [flags, &command] { command.action = [flags, shared = command.shared] { return serve(*shared, *flags); }; });
}

}  // namespace lumen::cli
