// lumen federate: its commands together, what they share, and `partition`
#include "apps/federate/verbs/verbs.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/error.h"
#include "base/file/file.h"
#include "cli/numbers.h"
#include "cli/output.h"
#include "cli/settings/declare.h"

namespace lumen::cli {
namespace {

constexpr const char* kText = "text.txt";
constexpr uint64_t kLargestText = uint64_t{1} << 30;

struct PartitionFlags {
  std::string data, out, how = "dir:0.5";
  int64_t clients = 10, seed = 1, images = 0, least_letters = 2000;
};

void write_images(const std::filesystem::path& folder, const std::string& part, const apps::Images& images) {
  const auto [pixels, labels] = apps::idx_bytes(images);
  write_file_atomic(folder / fmt::format("{}-images-idx{}-ubyte", part, images.channels == 1 ? 3 : 4), pixels);
  write_file_atomic(folder / fmt::format("{}-labels-idx1-ubyte", part), labels);
}

std::filesystem::path client_folder(const std::filesystem::path& out, int64_t number) {
  const std::filesystem::path folder = out / fmt::format("client-{:03}", number);
  require_writable_folder(folder);
  std::filesystem::create_directories(folder);
  return folder;
}

int partition_roles(const PartitionFlags& flags) {
  const auto roles = federate::roles_of(read_file(std::filesystem::path(flags.data) / kText, kLargestText));
  int64_t made = 0;
  std::string lines;
  for (const federate::SpokenRole& role : roles) {
    if (made == flags.clients || std::ssize(role.text) < flags.least_letters) break;
    write_file_atomic(client_folder(flags.out, made) / kText, role.text);
    lines += fmt::format("client-{:03}  {:>8} letters  {}\n", made++, role.text.size(), role.name);
  }
  if (made == 0)
    throw user_error("{} has no role of {} letters: speeches begin with NAME: on a line of its own", flags.data,
                     flags.least_letters);
  put(lines + fmt::format("wrote {}: {} of {} roles\n", flags.out, made, roles.size()));
  return 0;
}

int partition(const PartitionFlags& flags) {
  if (flags.how == "roles") return partition_roles(flags);
  apps::Images images = apps::read_images(flags.data, "train");
  const int64_t side = std::max(images.height, images.width);
  const federate::Examples all =
      some_examples(federate::examples_of(std::move(images), side), flags.images, flags.seed);
  const federate::Parts parts = parts_named(flags.how, all, flags.clients, flags.seed);
  const std::vector<double> whole = federate::histogram(all.shown, all.classes);
  std::string lines = "client       examples  distance  of each class\n";
  for (size_t i = 0; i < parts.size(); ++i) {
    const federate::Examples own = federate::chosen(all, parts[i]);
    write_images(client_folder(flags.out, i), "train", own.images);
    const std::vector<double> counts = federate::histogram(own.shown, all.classes);
    lines += fmt::format("client-{:03}   {:>8}    {:.4f} ", i, own.count(), federate::label_distance(counts, whole));
    for (const double n : counts) lines += fmt::format(" {:>4}", n);
    lines += '\n';
  }
  put(lines + fmt::format("wrote {}: {} clients, {} examples; distance: Jensen and Shannon's, at most 0.6931\n",
                          flags.out, parts.size(), all.count()));
  return 0;
}

// A key of the family's config; nothing where it has none.
std::optional<int64_t> config_of(const model::arch::Library& library, const federate::FederateSettings& s,
                                 const char* key) {
  const graph::Config config = library.family(s.network.family)->config(s.network.size, s.network.config);
  const auto at = config.find(key);
  return at == config.end() ? std::nullopt : std::optional<int64_t>(std::llround(at->second));
}

}  // namespace

void FederateFlags::add(CLI::App& app, bool has_method) {
  federate::FederateSettings& s = settings;
  add_settings(app, "--family", s.network.family, "--shape", s.network.size, "--config", config, "--weights", s.weights,
               "--activations", s.activations, "--gradients", s.gradients, "--upload", s.upload, "--no-feedback",
               s.feedback, "--epochs", s.epochs, "--batch", s.batch, "--lr", s.rate, "--refresh", s.refresh, "--rounds",
               s.rounds, "--sampled", s.sampled, "--seed", s.seed);
  if (has_method) add_setting(app, "--method", method);
  federate::AllocationSettings& a = s.allocation;
  add_settings(app, "--kappa", a.kappa, "--slack", a.slack, "--lambda", a.lambda, "--every", a.every, "--first",
               a.first);
}

federate::FederateSettings FederateFlags::of(const model::arch::Library& library) const {
  federate::FederateSettings s = settings;
  s.method = federate::named_method(method);
  s.network.seed = uint32_t(s.seed);
  for (const auto& [key, value] : named_numbers(config)) s.network.config[key] = value;
  if (s.weights.empty() && s.method != federate::FederateMethod::whole)
    throw Error(Exit::usage, fmt::format("--method {} needs --weights", method),
                "a format; `lumen format` lists them. --method float quantizes nothing");
  if (s.upload.empty()) s.upload = s.weights;
  s.allocation.epochs = s.epochs;
  (void)federate::local_settings(s, library.formats());
  return s;
}

federate::FederateSettings FederateFlags::of(const model::arch::Library& library,
                                             const federate::Examples& data) const {
  federate::FederateSettings s = of(library);
  const auto given = named_numbers(config);
  if (config_of(library, s, "classes") && !given.contains("classes")) s.network.config["classes"] = data.classes;
  if (config_of(library, s, "channels") && !given.contains("channels") && data.images.count > 0)
    s.network.config["channels"] = data.images.channels;
  return s;
}

federate::Examples read_examples(const std::string& folder, const std::string& part, int64_t side, int64_t span) {
  const std::filesystem::path text = std::filesystem::path(folder) / kText;
  if (!std::filesystem::exists(text)) return federate::examples_of(apps::read_images(folder, part), side);
  const std::string all = read_file(text, kLargestText);
  const size_t cut = all.size() - all.size() / 10;  // the last tenth is held out
  federate::Examples out = federate::examples_of(
      part == "train" ? std::string_view(all).substr(0, cut) : std::string_view(all).substr(cut), span);
  if (out.count() < 1) throw user_error("{} has too little text", text.string());
  return out;
}

federate::Examples read_examples(const std::string& folder, const std::string& part,
                                 const federate::FederateSettings& s, const model::arch::Library& library) {
  return read_examples(folder, part, config_of(library, s, "size").value_or(0),
                       config_of(library, s, "letters").value_or(0));
}

federate::Parts parts_named(const std::string& text, const federate::Examples& data, int64_t clients, uint64_t seed) {
  if (text == "iid") return federate::even_parts(data.count(), clients, seed);
  const size_t colon = text.find(':');
  const std::string kind = text.substr(0, colon);
  const double alpha = colon == std::string::npos ? 0 : named_numbers({"alpha=" + text.substr(colon + 1)}).at("alpha");
  if ((kind == "dir" || kind == "client") && alpha > 0 && alpha <= 1e6)
    return kind == "dir" ? federate::class_wise_parts(data.shown, data.classes, clients, alpha, seed)
                         : federate::client_wise_parts(data.shown, data.classes, clients, alpha, seed);
  throw Error(Exit::usage, fmt::format("'{}' is no way to part data", text),
              "iid, dir:ALPHA (Dirichlet by class), client:ALPHA (Dirichlet by client)");
}

void add_federate_partition(CLI::App& app, Command& command) {
  auto flags = std::make_shared<PartitionFlags>();
  CLI::App* sub = app.add_subcommand("partition", "Divide images, or a play's roles, among clients: a folder each");
  add_settings(*sub, "data", flags->data, "--out", flags->out, "--how", flags->how, "--clients", flags->clients,
               "--images", flags->images, "--least-letters", flags->least_letters, "--seed", flags->seed);
  set_action(*sub, command, flags, partition);
}

void add_federate(CLI::App& app, Command& command) {
  CLI::App* sub = app.add_subcommand("federate", "Train with clients that keep their data");
  sub->require_subcommand(1);
  for (auto* add :
       {add_federate_partition, add_federate_serve, add_federate_join, add_federate_simulate, add_federate_study})
    add(*sub, command);
}

}  // namespace lumen::cli
