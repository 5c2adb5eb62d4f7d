// needs: none. Options of other inference programs end in a usage error that names Lumen's own option.
#include "cli/other_programs/other_programs.h"

#include <gtest/gtest.h>

#include <functional>
#include <regex>

#include "../outcome.h"
#include "cli/command.h"

namespace lumen::cli {
namespace {

struct Case {
  std::vector<std::string> words;
  std::string name, hint;  // part of the hint
};

const Case kCases[] = {
    // Devices.
    {{"run", "-ngl", "99"}, "-ngl", "--device auto"},
    {{"run", "-m", "x", "-p", "To be", "-ngl", "99"}, "-ngl", "--device auto"},
    {{"chat", "-m", "x", "--n-gpu-layers", "99"}, "--n-gpu-layers", "--device auto"},
    {{"serve", "-m", "x", "--gpu-layers=99"}, "--gpu-layers", "--device auto"},
    {{"bench", "-m", "x", "-ot", "exps=CPU"}, "-ot", "--device"},
    {{"run", "-m", "x", "--cpu-moe"}, "--cpu-moe", "--device"},
    {{"run", "-m", "x", "-nkvo"}, "-nkvo", "--device"},
    {{"run", "-m", "x", "-ts", "3,1"}, "-ts", "--device cuda:N"},
    {{"serve", "-m", "x", "--tensor-split", "3,1"}, "--tensor-split", "--device cuda:N"},
    {{"run", "-m", "x", "-sm", "layer"}, "-sm", "--device cuda:N"},
    {{"bench", "-mg", "1"}, "-mg", "--device cuda:N"},
    {{"serve", "-m", "x", "--tensor-parallel-size", "2"}, "--tensor-parallel-size", "--device cuda:N"},
    {{"serve", "-m", "x", "-tp", "2"}, "-tp", "--device cuda:N"},
    {{"train", "--tensor-parallel-size", "2"}, "--tensor-parallel-size", "--tensor-parallel N"},
    {{"run", "-m", "x", "-dev", "cuda"}, "-dev", "write --device"},
    {{"run", "--list-devices"}, "--list-devices", "lumen doctor"},
    {{"serve", "-m", "x", "--gpu-memory-utilization", "0.9"}, "--gpu-memory-utilization", "--ctx-size"},
    {{"run", "-m", "x", "--mlock"}, "--mlock", "--no-mmap"},
    {{"bench", "-mmp", "0"}, "-mmp", "--no-mmap"},
    {{"run", "-m", "x", "--numa", "isolate"}, "--numa", "--threads"},
    {{"run", "-m", "x", "-tb", "8"}, "-tb", "--threads"},
    {{"run", "-m", "x", "-fa"}, "-fa", "leave it out"},
    {{"run", "-m", "x", "-fa", "on"}, "-fa", "leave it out"},
    {{"serve", "-m", "x", "--flash-attn"}, "--flash-attn", "leave it out"},
    // Lengths and batches.
    {{"run", "-m", "x", "-ub", "512"}, "-ub", "--batch-size"},
    {{"serve", "-m", "x", "--ubatch-size", "512"}, "--ubatch-size", "--batch-size"},
    {{"serve", "-m", "x", "--max-num-batched-tokens", "512"}, "--max-num-batched-tokens", "--batch-size"},
    {{"serve", "-m", "x", "--max-model-len", "4096"}, "--max-model-len", "--ctx-size"},
    {{"run", "-m", "x", "--num_ctx", "4096"}, "--num_ctx", "--ctx-size"},
    {{"serve", "-m", "x", "--max-num-seqs", "4"}, "--max-num-seqs", "--parallel"},
    {{"serve", "-m", "x", "-cb"}, "-cb", "leave it out"},
    {{"run", "-m", "x", "--max-new-tokens", "64"}, "--max-new-tokens", "--n-predict"},
    {{"bench", "-npl", "1,4"}, "-npl", "--npl"},
    {{"bench", "-m", "x", "-npp", "128", "-ntg", "128"}, "-npp", "--n-prompt"},
    {{"bench", "-m", "x", "-ntg", "128"}, "-ntg", "--n-gen"},
    {{"bench", "-m", "x", "-pg", "512,128"}, "-pg", "--pg"},
    // Types.
    {{"train", "--dtype", "bf16"}, "--dtype", "--precision"},
    {{"bench", "--dtype", "bf16"}, "--dtype", "--type"},
    {{"serve", "-m", "x", "--dtype", "bfloat16"}, "--dtype", "lumen quantize"},
    {{"serve", "-m", "x", "--quantization", "awq"}, "--quantization", "lumen quantize"},
    {{"export", "x", "--outtype", "bf16"}, "--outtype", "--type"},
    {{"export", "x", "--outfile", "y.gguf"}, "--outfile", "lumen export IN OUT"},
    {{"serve", "-m", "x", "--kv-cache-dtype", "fp8"}, "--kv-cache-dtype", "--cache-type-k"},
    // Prompts and answers.
    {{"chat", "-m", "x", "-sys", "Be brief."}, "-sys", "--system"},
    {{"run", "-m", "x", "-cnv"}, "-cnv", "lumen chat"},
    {{"run", "-m", "x", "-i"}, "-i", "lumen chat"},
    {{"run", "-m", "x", "-no-cnv"}, "-no-cnv", "lumen run"},
    {{"chat", "-m", "x", "--jinja"}, "--jinja", "leave it out"},
    {{"run", "-m", "x", "--format", "json"}, "--format", "--json-schema"},
    {{"run", "-m", "x", "--rope-scaling", "yarn"}, "--rope-scaling", "leave it out"},
    {{"chat", "-m", "x", "-mm", "y"}, "-mm", "--mmproj"},
    {{"perplexity", "-m", "x", "--mmproj", "y"}, "--mmproj", "no pictures"},
    {{"perplexity", "-m", "x", "--kl-divergence-base", "y"}, "--kl-divergence-base", "--record-logits"},
    // Servers.
    {{"serve", "-m", "x", "-a", "name"}, "-a", "--alias NAME"},
    {{"serve", "-m", "x", "--lora-modules", "a=b"}, "--lora-modules", "--adapter"},
    {{"serve", "-m", "x", "--slot-save-path", "d"}, "--slot-save-path", "--prefix-cache"},
    {{"serve", "-m", "x", "--enable-prefix-caching"}, "--enable-prefix-caching", "--prefix-cache"},
    {{"serve", "-m", "x", "--ssl-cert-file", "c"}, "--ssl-cert-file", "--tls-cert"},
    {{"serve", "-m", "x", "--ssl-key-file", "k"}, "--ssl-key-file", "--tls-key"},
    {{"serve", "-m", "x", "--metrics"}, "--metrics", "leave it out"},
    {{"serve", "-m", "x", "--trust-remote-code"}, "--trust-remote-code", "leave it out"},
};

TEST(OtherPrograms, OptionsEndInAHint) {
  for (const Case& c : kCases) {
    const Outcome o = lumen(c.words);
    EXPECT_EQ(o.code, 2) << c.name << " " << o.error;
    EXPECT_TRUE(contains(o.error, "'" + c.name + "' is no option of lumen " + c.words[0])) << o.error;
    const size_t hint = o.error.find("hint: ");
    ASSERT_NE(hint, std::string::npos) << c.name << " " << o.error;
    EXPECT_TRUE(contains(o.error.substr(hint), c.hint)) << c.name << " " << o.error;
    EXPECT_TRUE(o.out.empty()) << o.out;
  }
}

// A value of an option may look like an option of another program.
TEST(OtherPrograms, ValuesOfOptionsAreNotTakenForOptions) {
  for (const std::vector<std::string>& words : {std::vector<std::string>{"run", "-m", "missing", "-p", "-ngl"},
                                                {"run", "-m", "missing", "-n64", "-p", "-fa"}}) {
    const Outcome o = lumen(words);
    EXPECT_EQ(o.code, 1) << o.error;
    EXPECT_TRUE(contains(o.error, "missing")) << o.error;
  }
}

// Every entry serves some command that has no such option itself, and its hint names only options which that command
// has. An option that is renamed must be renamed here, too.
TEST(OtherPrograms, HintsNameOptionsThatExist) {
  Command command;
  const auto app = make_app(command);
  std::vector<const CLI::App*> commands;
  const std::function<void(const CLI::App&)> collect = [&](const CLI::App& at) {
    commands.push_back(&at);
    for (const CLI::App* sub : at.get_subcommands([](const CLI::App*) { return true; })) collect(*sub);
  };
  collect(*app);
  const std::regex quoted("`[^`]*`"), option("--[a-z][a-z-]*");
  for (const OtherOption& other : options_of_other_programs()) {
    const std::string hint = std::regex_replace(other.hint, quoted, "");
    int served = 0;
    for (const CLI::App* at : commands) {
      if (*other.needs && !at->get_option_no_throw(other.needs)) continue;
      ++served;
      if (!*other.needs) continue;
      for (std::sregex_iterator i(hint.begin(), hint.end(), option), end; i != end; ++i)
        EXPECT_TRUE(at->get_option_no_throw(i->str())) << at->get_name() << ": " << other.names << " -> " << hint;
    }
    EXPECT_GT(served, 0) << other.names;
  }
}

}  // namespace
}  // namespace lumen::cli
