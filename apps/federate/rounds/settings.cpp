// The settings shared by server and clients, as text.
#include "apps/federate/rounds/rounds.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/structured/json.h"
#include "base/structured/json_numbers.h"
#include "graph/ir/text.h"

namespace lumen::federate {
namespace {

constexpr FederateMethod kMethods[] = {FederateMethod::whole,  FederateMethod::after, FederateMethod::aware,
                                       FederateMethod::drawn,  FederateMethod::speed, FederateMethod::data,
                                       FederateMethod::coarse, FederateMethod::full};
constexpr const char* kMethodNames[] = {"float", "P", "Q", "random", "speed", "data", "coarse", "full"};

FormatRef named(const FormatLibrary& formats, const std::string& name) {
  if (name.empty()) return nullptr;
  try {
    return formats.get(name);
  } catch (const Error& e) {
    throw Error(Exit::usage, e.what(), e.hint());
  }
}

}  // namespace

std::span<const FederateMethod> methods() {
  return kMethods;
}

std::string method_name(FederateMethod m) {
  return kMethodNames[size_t(m)];
}

FederateMethod named_method(const std::string& name) {
  for (const FederateMethod m : kMethods)
    if (method_name(m) == name) return m;
  throw Error(Exit::usage, fmt::format("'{}' is no method", name), "float, P, Q, random, speed, data, coarse or full");
}

std::string settings_text(const FederateSettings& s) {
  nlohmann::json config = nlohmann::json::object();
  for (const auto& [key, value] : s.network.config) config[key] = value;
  const AllocationSettings& a = s.allocation;
  return json_print({{"family", s.network.family},
                     {"size", s.network.size},
                     {"config", config},
                     {"seed", s.seed},
                     {"weights", s.weights},
                     {"activations", s.activations},
                     {"gradients", s.gradients},
                     {"upload", s.upload},
                     {"epochs", s.epochs},
                     {"batch", s.batch},
                     {"refresh", s.refresh},
                     {"rate", s.rate},
                     {"feedback", s.feedback},
                     {"clients", s.clients},
                     {"sampled", s.sampled},
                     {"rounds", s.rounds},
                     {"deadline", s.deadline},
                     {"method", method_name(s.method)},
                     {"secure", s.is_secure},
                     {"kappa", a.kappa},
                     {"slack", a.slack},
                     {"lambda", a.lambda},
                     {"every", a.every},
                     {"first", a.first},
                     {"greed", a.greed}},
                    "settings", 2);
}

FederateSettings parse_federate_settings(const std::string& text, const std::string& where) {
  const nlohmann::json all = parse_json(text, where);
  constexpr int64_t kMany = 1'000'000'000;
  FederateSettings s;
  s.network.family = json_text(all, "family", where);
  s.network.size = json_text(all, "size", where);
  const nlohmann::json& config = json_member(all, "config", where);
  if (!config.is_object()) throw user_error("{}: \"config\" is no object", where);
  for (const auto& [key, value] : config.items()) s.network.config[key] = json_real(config, key.c_str(), where);
  s.seed = json_within(all, "seed", 0, 0xffffffff, where);
  s.network.seed = uint32_t(s.seed);
  for (const auto& [key, to] : {std::pair("weights", &s.weights),
                                {"activations", &s.activations},
                                {"gradients", &s.gradients},
                                {"upload", &s.upload}})
    *to = json_text(all, key, where);
  s.epochs = json_within(all, "epochs", 1, 100'000, where);
  s.batch = json_within(all, "batch", 1, 1 << 16, where);
  s.refresh = json_within(all, "refresh", 0, kMany, where);
  s.rate = json_real(all, "rate", where);
  s.feedback = json_boolean(all, "feedback", true, where);
  s.clients = json_within(all, "clients", 1, kMany, where);
  s.sampled = json_within(all, "sampled", 1, s.clients, where);
  s.rounds = json_within(all, "rounds", 1, kMany, where);
  s.deadline = json_real(all, "deadline", where);
  s.is_secure = json_boolean(all, "secure", false, where);
  s.method = named_method(json_text(all, "method", where));
  AllocationSettings& a = s.allocation;
  for (const auto& [key, to] :
       {std::pair("kappa", &a.kappa), {"slack", &a.slack}, {"lambda", &a.lambda}, {"greed", &a.greed}})
    *to = json_real(all, key, where);
  a.every = json_within(all, "every", 1, kMany, where);
  a.first = json_within(all, "first", 1, kMany, where);
  a.epochs = s.epochs;
  return s;
}

LocalSettings local_settings(const FederateSettings& s, const FormatLibrary& formats) {
  LocalSettings out;
  out.formats = {named(formats, s.weights), named(formats, s.activations), named(formats, s.gradients),
                 named(formats, s.upload)};
  out.epochs = s.epochs;
  out.batch = s.batch;
  out.rate = s.rate;
  out.refresh = s.refresh;
  return out;
}

uint64_t model_hash(const FederateSettings& settings, const model::arch::Library& library) {
  const model::arch::FamilyRef family = library.family(settings.network.family);
  const graph::Config config = family->config(settings.network.size, settings.network.config);
  std::string all = settings_text(settings);
  graph::Graph loss = family->function("loss", config);
  graph::inline_calls(loss);
  all += graph::print(loss);
  for (const model::arch::Parameter& p : family->parameters(config)) all += fmt::format("{} {}\n", p.name, p.count());
  for (const std::string* name : {&settings.weights, &settings.activations, &settings.gradients, &settings.upload})
    if (const FormatRef f = named(library.formats(), *name)) all += f->hash.hex();
  return hash_text(all).low;
}

}  // namespace lumen::federate
