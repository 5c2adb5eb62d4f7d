#include "cli/other_programs/other_programs.h"

#include <algorithm>

namespace lumen::cli {
namespace {

// Entries with the same name: the first one counts whose `needs` the command has.
constexpr OtherOption kOptions[] = {
    // Devices.
    {"-ngl,--gpu-layers,--n-gpu-layers,--n_gpu_layers,--num-gpu,-ngld,--gpu-layers-draft,--n-gpu-layers-draft",
     "--device", "--device auto, cuda or hip runs the whole model on a GPU; the default is cpu"},
    {"-ncmoe,--n-cpu-moe,-cmoe,--cpu-moe,-ot,--override-tensor,--cpu-offload-gb,--swap-space", "--device",
     "a model is not split between GPU and processor: --device chooses one of them"},
    {"-nkvo,--no-kv-offload,-kvo,--kv-offload", "--device",
     "leave it out: the key-value cache is always in the memory of --device"},
    {"-tp,--tensor-parallel-size", "--tensor-parallel", "write --tensor-parallel N"},
    {"-ts,--tensor-split,-sm,--split-mode,-mg,--main-gpu,-tp,--tensor-parallel-size,--pipeline-parallel-size,"
     "--data-parallel-size",
     "--device", "a model runs on one GPU: --device cuda:N chooses it"},
    {"-dev", "--device", "write --device"},
    {"--list-devices", "", "`lumen doctor` lists the devices"},
    {"--gpu-memory-utilization", "--ctx-size",
     "there is no share of memory to set: -c (--ctx-size) sets the size of the key-value cache in tokens"},
    {"--mlock", "--no-mmap", "memory is not locked; --no-mmap copies the weights out of their file into memory"},
    {"-mmp", "--no-mmap", "write --no-mmap, or leave it out"},
    {"--numa,--prio,--poll", "--threads", "leave it out: -t (--threads) is the only setting of threads"},
    {"-tb,--threads-batch", "--threads", "-t (--threads) is for prompts and for generated tokens alike"},
    {"-fa,--flash-attn", "", "leave it out: fast attention needs no option"},

    // Lengths and batches.
    {"-ub,--ubatch-size,--max-num-batched-tokens,--n_batch", "--batch-size",
     "write -b (--batch-size): prompt tokens computed at once"},
    {"--max-model-len,--max-seq-len,--context-length,--num-ctx,--num_ctx,--n-ctx,--n_ctx", "--ctx-size",
     "write -c (--ctx-size)"},
    {"--max-num-seqs,--num-parallel", "--parallel", "write --parallel"},
    {"-cb,--cont-batching,-nocb,--no-cont-batching", "--host", "leave it out: requests are always computed together"},
    {"--num-predict,--num_predict,--max-tokens,--max_tokens,--max-new-tokens", "--n-predict", "write -n (--n-predict)"},
    {"-npl", "--npl", "write --npl"},
    {"-npp", "--n-prompt", "write -p (--n-prompt)"},
    {"-ntg", "--n-gen", "write -n (--n-gen)"},
    {"-pg", "--pg", "write --pg"},

    // Types.
    {"--dtype", "--precision", "write --precision"},
    {"--dtype,--outtype", "--type", "write --type"},
    {"--outfile", "--to", "the output is the second argument: `lumen export IN OUT`"},
    {"--dtype,--quantization", "--device",
     "a model runs in the formats that its file stores; `lumen quantize` writes other formats"},
    {"--kv-cache-dtype", "--cache-type-k", "write --cache-type-k and --cache-type-v"},

    // Prompts and answers.
    {"-sys,--sys", "--system", "write --system"},
    {"-cnv,--conversation,-i,--interactive,-if,--interactive-first", "--prompts",
     "`lumen chat` holds a conversation; `lumen run` continues a prompt"},
    {"-no-cnv,--no-conversation", "", "`lumen run` continues a prompt without a chat template"},
    {"--jinja,--no-jinja", "--chat-template", "leave it out: chat templates are always Jinja"},
    {"--format", "--json-schema", "write -j (--json-schema) with a JSON schema"},
    {"--rope-scaling,--rope-scale,--rope-freq-base,--rope-freq-scale", "--ctx-size",
     "leave it out: the model's file defines how positions are scaled"},
    {"-mm", "--mmproj", "write --mmproj"},
    {"--mmproj", "", "this command reads no pictures"},
    {"--kl-divergence-base", "--kl-divergence",
     "--record-logits FILE writes the base's logits, and --kl-divergence FILE compares with them"},

    // Servers.
    {"-a", "--alias", "write --alias NAME, or the name in front of the model: -m NAME=FILE"},
    {"--lora-modules,--enable-lora", "--adapter", "write --adapter NAME=FILE"},
    {"--slot-save-path", "--prefix-cache", "write --prefix-cache DIR"},
    {"--enable-prefix-caching", "--prefix-cache",
     "leave it out: prefixes that prompts share are computed once; --prefix-cache DIR also keeps them in files"},
    {"--ssl-cert-file,--ssl-certfile", "--tls-cert", "write --tls-cert"},
    {"--ssl-key-file,--ssl-keyfile", "--tls-key", "write --tls-key"},
    {"--embedding,--embeddings,--metrics", "--host", "leave it out: /v1/embeddings and /metrics are always served"},
    {"--trust-remote-code", "", "leave it out: code that comes with a model is never run"},
};

bool has_name(std::string_view names, std::string_view name) {
  while (!names.empty()) {
    const size_t end = std::min(names.find(','), names.size());
    if (names.substr(0, end) == name) return true;
    names.remove_prefix(std::min(end + 1, names.size()));
  }
  return false;
}

}  // namespace

std::span<const OtherOption> options_of_other_programs() {
  return kOptions;
}

std::string hint_for_other_option(const CLI::App& command, std::string_view name) {
  for (const OtherOption& other : kOptions)
    if (has_name(other.names, name) && (!*other.needs || command.get_option_no_throw(other.needs))) return other.hint;
  return {};
}

std::optional<std::string> other_short_option(const CLI::App& command, const std::vector<std::string>& words) {
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "--") break;
    if (word.size() < 2 || word[0] != '-') continue;
    if (const CLI::Option* own = command.get_option_no_throw(word)) {
      i += size_t(std::max(std::min(own->get_type_size_min(), own->get_items_expected_min()), 0));
      continue;
    }
    if (word.size() > 2 && word[1] != '-' && !hint_for_other_option(command, word).empty()) return word;
  }
  return std::nullopt;
}

}  // namespace lumen::cli
