// Options of several commands.
#include "cli/settings/rows.h"

namespace lumen::cli {
namespace {

constexpr Setting kRows[] = {
    Setting{"--formats", "*", "Folder with number formats (*.lum) of your own; repeatable"}.under("Common").reading(
        Reads::library, "DIR"),
    Setting{"--models", "*", "Folder with model families (*.lum) and recipes (*.toml)"}.under("Common").reading(
        Reads::library, "DIR"),
    Setting{"-t,--threads", "*", "Threads; 0: all cores that this process may use"}
        .under("Common")
        .from(0, 4096)
        .in_api("model.threads"),
    Setting{"--device", "*", "cpu, cuda[:N], hip[:N], or auto: a GPU if there is one"}
        .under("Common")
        .with_default()
        .takes("DEVICE")
        .in_api("model.device"),
    Setting{"--machine", "*", "Processor or GPU to generate code for; see `lumen doctor`"}.under("Common").takes(
        "NAME"),
    Setting{"--cache", "*", "Folder of compiled kernels and tokenized data; 'off' keeps them in memory"}
        .under("Common")
        .writing(Writes::folder_of_cache, "DIR")
        .as_variable("LUMEN_CACHE")
        .in_api("model.cache"),
    Setting{"--cache-limit", "*",
            "Size of that folder, 20G by default; the least recently used files are deleted first; 0: no limit"}
        .under("Common")
        .takes("SIZE"),
    Setting{"!--no-tune", "*",
            "Use the cost model's plans only; by default slow kernels try other plans while they run"}
        .under("Common")
        .in_api("model.tune"),
    Setting{"--libraries", "*",
            "Let cuBLASLt or hipBLASLt multiply matrices where a measurement shows that it is faster; rounding differs"}
        .under("Common"),
    Setting{"--try", "*",
            "Test each kernel once on random data before it is used: auto (on GPUs without published test results), "
            "always, never"}
        .under("Common")
        .takes("WHEN"),
    Setting{"-v,--verbose", "*", "Print more messages"}.under("Common"),
    Setting{"-q,--quiet", "*", "Print fewer messages"}.under("Common"),
    Setting{"--lora", "run,chat,serve,bench,perplexity,embed,eval",
            "Adapter to apply to the model: a GGUF file or a PEFT folder; repeatable"}
        .under("Adapters")
        .reading(Reads::model, "FILE[=SCALE]")
        .list()
        .one_each(),
    Setting{"--lora-scaled", "run,chat,serve,bench,perplexity,embed,eval",
            "The same as --lora, as other programs spell it"}
        .under("Adapters")
        .reading(Reads::model, "FILE:SCALE")
        .list()
        .one_each(),
    Setting{"--cache-type-k,--ctk", "run,chat,serve,bench", "Format of the keys in the KV cache; f32 by default"}
        .under("Context and cache")
        .takes("TYPE"),
    Setting{"--cache-type-v,--ctv", "run,chat,serve,bench", "Format of the values in the KV cache; f32 by default"}
        .under("Context and cache")
        .takes("TYPE"),
    Setting{"--narrow", "run,chat,serve",
            "Select the candidates for a token on the device, and copy only their logits: auto (on GPUs), never, "
            "always; the tokens are the same"}
        .under("Computation")
        .takes("WHERE")
        .one_of("auto never always"),
    Setting{"--mmproj", "run,chat,serve",
            "GGUF file of the part that reads pictures, for a model whose own GGUF file has none"}
        .reading(Reads::file, "FILE"),
    Setting{"--mmap,!--no-mmap", "run,chat,serve,bench,perplexity,eval",
            "Use weights from the memory-mapped file; --no-mmap copies them into memory, in huge pages if possible, "
            "which processors read faster"}
        .under("Computation")
        .in_api("model.mmap"),
    Setting{"--model-draft,--md", "run,chat,serve",
            "Speculative decoding: a smaller model with the same vocabulary proposes tokens, and the model checks "
            "several at once (also -md)"}
        .under("Drafts")
        .reading(Reads::model, "FILE"),
    Setting{"--lookup", "run,chat,serve",
            "Speculative decoding without a second model: propose what followed the same words earlier in the text"}
        .under("Drafts"),
    Setting{"--draft,--draft-max,--draft-n", "run,chat,serve", "Most tokens proposed at once"}
        .under("Drafts")
        .with_default()
        .from(1, 256),
    Setting{"--exact", "run,chat,serve,bench,bench kernels,perplexity,compare,eval,embed,imatrix,compile",
            "Compute activations in f32 everywhere"}
        .under("Computation")
        .in_api("generate.exact,logits.exact,embed.exact,perplexity.exact"),
    Setting{"--batch-invariant,!--no-batch-invariant", "run,chat,serve,bench",
            "Keep the output of a request the same to the last bit when other requests run or its prompt is cached. "
            "The default on processors, where recurrent layers read prompts in chunks unless it is given; GPUs: if "
            "asked for, and in serve only"}
        .under("Computation"),
    Setting{"-c,--ctx-size", "perplexity,compare,imatrix", "Tokens per window"}
        .with_default()
        .from(4, 1 << 20)
        .as_variable("LUMEN_WINDOW_SIZE")
        .in_api("perplexity.length"),
    Setting{"-b,--batch-size", "perplexity,imatrix", "Windows computed at once"}
        .under("Computation")
        .with_default()
        .from(1, 4096)
        .as_variable("LUMEN_WINDOWS_AT_ONCE")
        .in_api("perplexity.batch"),
    Setting{"--chunks", "perplexity,compare,imatrix", "Only the first windows; 0: all"}.with_default().from(0).in_api(
        "perplexity.windows"),
};

}  // namespace

std::span<const Setting> shared_rows() {
  return kRows;
}

}  // namespace lumen::cli
