// Options of commands that generate text: run, chat.
#include "cli/settings/rows.h"

namespace lumen::cli {
namespace {

constexpr double kLeast = 1e-6;  // the lower bound of options that must be above 0

constexpr Setting kRows[] = {
    Setting{"-n,--predict,--n-predict", "run,chat", "Tokens to generate; -1: no limit, -2: until the context is full"}
        .with_default()
        .from(-2)
        .in_api("generate.max_tokens"),
    Setting{"-c,--ctx-size", "run,chat", "Context length; 0: the model's"}.with_default().from(0).in_api(
        "generate.context,logits.context"),
    Setting{"-b,--batch-size", "run,chat", "Prompt tokens computed at once"}
        .under("Context and cache")
        .with_default()
        .from(1, 1 << 24),
    Setting{"--keep", "run,chat", "Tokens at the beginning to keep when the context is full; -1: the prompt"}
        .under("Context and cache")
        .with_default()
        .from(-1),
    Setting{"--context-shift,!--no-context-shift", "run,chat",
            "When the context is full, drop the oldest tokens after --keep and continue; otherwise the answer ends"}
        .under("Context and cache"),
    Setting{"-s,--seed", "run,chat", "Seed of sampling; -1: a different one each time"}
        .with_default()
        .from(-1, 0xffffffff)
        .in_api("generate.seed"),
    Setting{"--ignore-eos", "run,chat", "Never generate an end token"}.under("Sampling").in_api("generate.ignore_end"),
    Setting{"--stop,-r,--reverse-prompt", "run,chat", "Text that ends the answer; repeatable"}.takes("TEXT").in_api(
        "generate.stop"),
    Setting{"--temp,--temperature", "run,chat", "Temperature; 0: always the most likely token"}
        .under("Sampling")
        .from(0, 1000)
        .with_default()
        .in_api("generate.temperature"),
    Setting{"--top-k", "run,chat", "Sample from the k most likely tokens; 0: all"}
        .under("Sampling")
        .from(0)
        .with_default()
        .in_api("generate.top_k"),
    Setting{"--top-p", "run,chat", "Sample from the most likely tokens whose probabilities add up to this; 1: all"}
        .under("Sampling")
        .from(kLeast, 1)
        .with_default()
        .in_api("generate.top_p"),
    Setting{"--min-p", "run,chat", "Sample from tokens with at least this share of the highest probability"}
        .under("Sampling")
        .from(0, 1 - kLeast)
        .with_default()
        .in_api("generate.min_p"),
    Setting{"--typical,--typical-p", "run,chat",
            "Locally typical sampling: tokens near the expected surprise, with this total probability; 1: all"}
        .under("Sampling")
        .from(kLeast, 1)
        .with_default()
        .in_api("generate.typical_p"),
    Setting{"--top-n-sigma,--top-nsigma", "run,chat",
            "Sample from tokens whose logits are within this many standard deviations of the highest; 0: all"}
        .under("Sampling")
        .from(0, 1000)
        .with_default()
        .in_api("generate.top_n_sigma"),
    Setting{"--xtc-probability", "run,chat",
            "Probability of XTC, which removes all likely tokens except the least likely of them"}
        .under("Sampling")
        .from(0, 1)
        .with_default()
        .in_api("generate.xtc_probability"),
    Setting{"--xtc-threshold", "run,chat", "Probability above which a token is likely for XTC"}
        .under("Sampling")
        .from(kLeast, 1)
        .with_default()
        .in_api("generate.xtc_threshold"),
    Setting{"--repeat-penalty", "run,chat", "Penalty of repeated tokens; 1: none"}
        .under("Sampling")
        .from(kLeast, 1000)
        .with_default()
        .in_api("generate.repeat_penalty"),
    Setting{"--repeat-last-n", "run,chat", "Number of last tokens that penalties look at; -1: all"}
        .under("Sampling")
        .from(-1)
        .with_default()
        .in_api("generate.repeat_last"),
    Setting{"--presence-penalty", "run,chat", "Subtracted once from the logit of a token that occurred before"}
        .under("Sampling")
        .from(-1000, 1000)
        .with_default()
        .in_api("generate.presence_penalty"),
    Setting{"--frequency-penalty", "run,chat", "Subtracted from a token's logit for each time that it occurred"}
        .under("Sampling")
        .from(-1000, 1000)
        .with_default()
        .in_api("generate.frequency_penalty"),
    Setting{"--dry-multiplier", "run,chat", "Strength of the DRY penalty of repeated passages; 0: off"}
        .under("Sampling")
        .from(0, 1000)
        .with_default(),
    Setting{"--dry-base", "run,chat", "Growth of the DRY penalty with the length of the passage"}
        .under("Sampling")
        .from(1, 1000)
        .with_default(),
    Setting{"--dry-allowed-length", "run,chat", "Longest passage that may repeat without a DRY penalty"}
        .under("Sampling")
        .from(0)
        .with_default(),
    Setting{"--dry-penalty-last-n", "run,chat", "Number of last tokens that DRY looks at; -1: all"}
        .under("Sampling")
        .from(-1)
        .with_default(),
    Setting{"--dry-sequence-breaker", "run,chat", "Strings that end a passage for DRY; repeatable"}
        .under("Sampling")
        .takes("TEXT"),
    Setting{"--mirostat", "run,chat",
            "1 or 2: Mirostat keeps the surprise near a target, instead of top-k, top-p and others"}
        .under("Sampling")
        .from(0, 2)
        .with_default(),
    Setting{"--mirostat-lr", "run,chat", "Learning rate of Mirostat"}
        .under("Sampling")
        .from(kLeast, 1000)
        .with_default(),
    Setting{"--mirostat-ent", "run,chat", "Target surprise of Mirostat, in bits"}
        .under("Sampling")
        .from(kLeast, 1000)
        .with_default(),
    Setting{"-l,--logit-bias", "run,chat",
            "ID+NUMBER or ID-NUMBER: add to or subtract from a token's logit; ID-inf forbids it"}
        .under("Sampling")
        .takes("ID+N")
        .in_api("generate.logit_bias"),
    Setting{"--grammar", "run,chat", "GBNF grammar that the answer must follow"}
        .under("Sampling")
        .takes("TEXT")
        .in_api("generate.grammar"),
    Setting{"--grammar-file", "run,chat", "File with such a grammar"}.under("Sampling").reading(Reads::file, "FILE"),
    Setting{"-j,--json-schema", "run,chat", "JSON schema that the answer must match; {}: any JSON"}
        .under("Sampling")
        .takes("JSON")
        .in_api("generate.json_schema"),
    Setting{"--json-schema-file", "run,chat", "File with such a schema"}.under("Sampling").reading(Reads::file, "FILE"),
    Setting{"-m,--model,--model_name_or_path,model", "run,chat", "GGUF file or Hugging Face folder"}
        .reading(Reads::model, "FILE")
        .required(),
    Setting{"-p,--prompt,prompt", "run",
            "Text to continue; it may be empty if the model has a BOS token. - reads standard input. A pipe or file on "
            "standard input follows the prompt. Without a prompt, lines are read from the terminal"},
    Setting{"-f,--file", "run", "File with the prompt; it follows the text of -p"}
        .reading(Reads::file, "FILE")
        .as_variable("LUMEN_PROMPT_FILE"),
    Setting{
        "--image", "run",
        "Picture for the prompt (JPEG, PNG, WebP or BMP); repeatable. The prompt's places for pictures take them in "
        "order; without places they come before it"}
        .reading(Reads::file, "FILE")
        .one_each(),
    Setting{"--prompts", "run",
            "File with a prompt on each line (.jsonl: {\"prompt\": TEXT}); several are continued at once"}
        .under("Many prompts")
        .reading(Reads::file, "FILE"),
    Setting{"--parallel,--np", "run", "Sequences generated at once, up to 256 (also -np); 8 by default"}.under(
        "Many prompts"),
    Setting{"--sequences,--ns", "run",
            "Continuations of each prompt, with seeds counted from --seed (also -ns); by default --parallel for a "
            "single prompt"}
        .under("Many prompts")
        .from(1, 100000)
        .as_variable("LUMEN_SEQUENCES"),
    Setting{"--json", "run", "Print a JSON object for each sequence"}
        .under("Many prompts")
        .as_variable("LUMEN_RUN_JSON"),
    Setting{"--no-display-prompt", "run", "Print the continuation only"},
    Setting{"--markdown,!--no-markdown", "run,chat", "Show Markdown in colours on a terminal; also off with NO_COLOR"},
    Setting{"--history,!--no-history", "run,chat",
            "Keep what is typed on a terminal in ~/.local/state/lumen, for the arrow keys"},
    Setting{"--explain", "run", "Print the kernels of one step and their times"}.under("Computation"),
    Setting{"--system,--system-prompt", "chat", "System message: how the model should answer"},
    Setting{"-p,--prompt", "chat", "First message"},
    Setting{"--load", "chat", "Continue a conversation that /save wrote"}
        .under("Conversation")
        .reading(Reads::file, "FILE"),
    Setting{"--chat-template,--chat-template-file", "chat",
            "Chat template: a Jinja file, plain, or chatml; default: the model's own"}
        .reading(Reads::file, "FILE|NAME")
        .in_api("chat.template"),
    Setting{"--chat-template-kwargs", "chat", "Additional values for the template, as JSON"}
        .under("Conversation")
        .takes("JSON")
        .in_api("chat.template_values"),
    Setting{"--times", "chat", "Print the number of tokens and the speed after each answer"}.under("Conversation"),
    Setting{"--show-prompt", "chat",
            "Print exactly what the model would read (--system, --load, -p through the template), and exit"}
        .under("Conversation")
        .no_variable(),
    Setting{"--ids", "chat", "With --show-prompt: print its token ids"}.under("Conversation").no_variable(),
};

}  // namespace

std::span<const Setting> generating_rows() {
  return kRows;
}

}  // namespace lumen::cli
