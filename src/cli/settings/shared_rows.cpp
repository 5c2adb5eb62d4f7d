// Options of several commands.
#include "cli/settings/rows.h"

namespace lumen::cli {
namespace {

constexpr Setting kRows[] = {
    Setting{"--formats", "*", "Folder with number formats (*.lum) of your own; repeatable"}
        .under("Common")
        .reading(Reads::library)
        .takes("DIR"),
    Setting{"--models", "*", "Folder with model families (*.lum) and recipes (*.toml)"}
        .under("Common")
        .reading(Reads::library)
        .takes("DIR"),
    Setting{"-t,--threads", "*", "Threads; 0 takes all cores this process may use"}
        .under("Common")
        .from(0, 4096)
        .in_api("model.threads"),
    Setting{"--device", "*", "cpu, cuda[:N], hip[:N], or auto: a GPU where there is one"}
        .under("Common")
        .with_default()
        .takes("DEVICE")
        .in_api("model.device"),
    Setting{"--machine", "*", "Code for which processor or GPU; see `lumen doctor`"}.under("Common").takes("NAME"),
    Setting{"--cache", "*", "Folder of compiled kernels and tokenized data; 'off' keeps them in memory"}
        .under("Common")
        .writing(Writes::folder_of_cache)
        .takes("DIR")
        .as_variable("LUMEN_CACHE")
        .in_api("model.cache"),
    Setting{"--cache-limit", "*",
            "What that folder may hold, 20G without it or LUMEN_CACHE_LIMIT; what was not used for the longest goes "
            "first, 0: no limit"}
        .under("Common")
        .takes("SIZE"),
    Setting{"!--no-tune", "*", "Keep the cost model's plans; by default heavy kernels try others while they work"}
        .under("Common")
        .in_api("model.tune"),
    Setting{"--libraries", "*",
            "Let cuBLASLt or hipBLASLt multiply matrices where that is measured to be faster; rounding differs"}
        .under("Common"),
    Setting{"--try", "*",
            "Launch each kernel once on random data before it is trusted: auto (GPUs that were not measured), always, "
            "never"}
        .under("Common")
        .takes("WHEN"),
    Setting{"-v,--verbose", "*", "Say more"}.under("Common"),
    Setting{"-q,--quiet", "*", "Say less"}.under("Common"),
    Setting{"--lora", "run,chat,serve,bench,perplexity,embed,eval",
            "Adapter to apply to the model: a GGUF file or a PEFT folder; repeatable"}
        .under("Adapters")
        .reading(Reads::model)
        .takes("FILE[=SCALE]")
        .list()
        .one_each(),
    Setting{"--lora-scaled", "run,chat,serve,bench,perplexity,embed,eval", "The same, as other programs spell it"}
        .under("Adapters")
        .reading(Reads::model)
        .takes("FILE:SCALE")
        .list()
        .one_each(),
    Setting{"--cache-type-k,--ctk", "run,chat,serve,bench", "Format of the keys in the cache; without it f32"}
        .under("Context and cache")
        .takes("TYPE"),
    Setting{"--cache-type-v,--ctv", "run,chat,serve,bench", "Format of the values in the cache; without it f32"}
        .under("Context and cache")
        .takes("TYPE"),
    Setting{"--narrow", "run,chat,serve",
            "Find the candidates for a token on the device, whose other logits stay there: auto (where it is a GPU), "
            "never, always; the same tokens"}
        .under("Computation")
        .takes("WHERE")
        .one_of("auto never always"),
    Setting{"--mmap,!--no-mmap", "run,chat,serve,bench,perplexity,eval",
            "Use the weights where their file is mapped; --no-mmap copies them into memory, in huge pages where it "
            "can: processors read those faster"}
        .under("Computation")
        .in_api("model.mmap"),
    Setting{"--model-draft,--md", "run,chat,serve",
            "A smaller model of the same vocabulary proposes tokens, and the model checks several at once (also -md)"}
        .under("Drafts")
        .reading(Reads::model)
        .takes("FILE"),
    Setting{"--lookup", "run,chat,serve",
            "The same with proposals from the text itself: what followed the last words before"}
        .under("Drafts"),
    Setting{"--draft,--draft-max,--draft-n", "run,chat,serve", "Tokens proposed at once, at most"}
        .under("Drafts")
        .with_default()
        .from(1, 256),
    Setting{"--exact", "run,chat,serve,bench,perplexity,compare,eval,embed,imatrix", "f32 activations throughout"}
        .under("Computation")
        .in_api("generate.exact,logits.exact,embed.exact,perplexity.exact"),
    Setting{"--batch-invariant", "run,chat,serve,bench",
            "The same output for a request whatever runs next to it and whatever was cached, to the last bit; reading "
            "prompts and many sequences take longer (CPU)"}
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
    Setting{"--chunks", "perplexity,compare,imatrix", "Only the first windows; 0 takes all"}
        .with_default()
        .from(0)
        .in_api("perplexity.windows"),
};

}  // namespace

std::span<const Setting> shared_rows() {
  return kRows;
}

}  // namespace lumen::cli
