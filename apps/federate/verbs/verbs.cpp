// lumen federate: its commands together, what they share, and `partition`
#include "apps/federate/verbs/verbs.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/error.h"
#include "base/file/file.h"
#include "cli/numbers.h"
#include "cli/output.h"
#include "cli/paths/paths.h"

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
std::optional<int64_t> config_of(const model::Library& library, const federate::FederateSettings& s, const char* key) {
  const graph::Config config = library.family(s.network.family)->config(s.network.size, s.network.config);
  const auto at = config.find(key);
  return at == config.end() ? std::nullopt : std::optional<int64_t>(std::llround(at->second));
}

}  // namespace

void FederateFlags::add(CLI::App& app, bool has_method) {
  federate::FederateSettings& s = settings;
  app.add_option("--family", s.network.family, "Family of models/*.lum with logits and a loss of what examples show")
      ->required()
      ->type_name("NAME");
  app.add_option("--shape", s.network.size, "Size that the family names")->type_name("NAME");
  app.add_option("--config", config, "A config value; repeatable")->type_name("KEY=NUMBER");
  app.add_option("--weights", s.weights, "Format of weights in P and Q")->type_name("FORMAT");
  app.add_option("--activations", s.activations, "Format of the inputs of products: one scale for the whole tensor")
      ->type_name("FORMAT");
  app.add_option("--gradients", s.gradients, "The same, in P, of gradients that are multiplied by weights")
      ->type_name("FORMAT");
  app.add_option("--upload", s.upload, "Format of what clients send; without it that of the weights")
      ->type_name("FORMAT");
  app.add_flag("!--no-feedback", s.feedback,
               "Drop the rounding error of an upload instead of adding it to the next one");
  app.add_option("--epochs", s.epochs, "Passes over its data that a client makes in a round")
      ->check(whole(1, 100'000))
      ->capture_default_str();
  app.add_option("-b,--batch", s.batch, "Examples of a step")->check(whole(1, 1 << 16))->capture_default_str();
  app.add_option("--lr,--rate", s.rate, "Learning rate")->check(real(1e-9, 10))->capture_default_str();
  app.add_option("--refresh", s.refresh, "In P: steps between encodings of the weights; 0: once for each epoch")
      ->check(whole(0, 1'000'000'000))
      ->capture_default_str();
  app.add_option("--rounds", s.rounds, "Rounds")->check(whole(1, 1'000'000'000))->capture_default_str();
  app.add_option("--sampled", s.sampled, "Clients of a round")->check(whole(1, 1'000'000))->capture_default_str();
  app.add_option("--seed", s.seed, "Seed of weights, of the sampled clients and of all other random numbers")
      ->check(whole(0, 0xffffffff))
      ->capture_default_str();
  if (has_method)
    app.add_option(
           "--method", method,
           "How clients train: float, P, Q; random, speed, data: mixtures; coarse, full: chosen by measurements")
        ->capture_default_str();
  federate::AllocationSettings& a = s.allocation;
  app.add_option("--kappa", a.kappa, "Additional weight of errors for skewed labels")
      ->check(real(0, 1000))
      ->capture_default_str();
  app.add_option("--slack", a.slack, "Share of the slowest client's time that Q may take longer at no cost")
      ->check(real(0, 10))
      ->capture_default_str();
  app.add_option("--lambda", a.lambda, "Weight of time relative to errors")
      ->check(real(0, 1000))
      ->capture_default_str();
  app.add_option("--every", a.every, "Rounds between adjustments")->check(whole(1, 1'000'000))->capture_default_str();
  app.add_option("--first", a.first, "Number of first windows that try other allocations")
      ->check(whole(1, 1'000'000))
      ->capture_default_str();
}

federate::FederateSettings FederateFlags::of(const model::Library& library) const {
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

federate::FederateSettings FederateFlags::of(const model::Library& library, const federate::Examples& data) const {
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
                                 const federate::FederateSettings& s, const model::Library& library) {
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
  sub->add_option("data", flags->data, "Folder of IDX files (train-..), or with text.txt")
      ->check(reads(Reads::folder))
      ->required()
      ->type_name("FOLDER");
  sub->add_option("-o,--out", flags->out, "Folder to write")
      ->check(writes(Writes::folder))
      ->required()
      ->type_name("FOLDER");
  sub->add_option("--how", flags->how,
                  "iid; dir:ALPHA, each class divided by a Dirichlet draw; client:ALPHA, each client's mixture drawn; "
                  "roles: who speaks in a play")
      ->capture_default_str();
  sub->add_option("--clients", flags->clients, "Number of clients")->check(whole(1, 100'000))->capture_default_str();
  sub->add_option("--images", flags->images, "Number of images to draw; 0: all")->check(whole(0, 1'000'000'000));
  sub->add_option("--least-letters", flags->least_letters, "Skip roles with fewer letters")
      ->check(whole(1, 1'000'000'000))
      ->capture_default_str();
  sub->add_option("--seed", flags->seed, "Of what is drawn")->check(whole(0, 0xffffffff))->capture_default_str();
  add_shared_flags(*sub, command.shared);
  sub->callback([flags, &command] { command.action = [flags] { return partition(*flags); }; });
}

void add_federate(CLI::App& app, Command& command) {
  CLI::App* sub = app.add_subcommand("federate", "Train with clients that keep their data");
  sub->require_subcommand(1);
  for (auto* add :
       {add_federate_partition, add_federate_serve, add_federate_join, add_federate_simulate, add_federate_study})
    add(*sub, command);
}

}  // namespace lumen::cli
