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
    Setting{"--keep", "run,chat", "Tokens of the beginning that stay when the context is full; -1: the prompt"}
        .under("Context and cache")
        .with_default()
        .from(-1),
    Setting{"--context-shift,!--no-context-shift", "run,chat",
            "When the context is full, drop the oldest tokens after --keep and go on; else the answer ends there"}
        .under("Context and cache"),
    Setting{"-s,--seed", "run,chat", "Seed of sampling; -1: another each time"}
        .with_default()
        .from(-1, 0xffffffff)
        .in_api("generate.seed"),
    Setting{"--ignore-eos", "run,chat", "Never draw an end token"}.under("Sampling").in_api("generate.ignore_end"),
    Setting{"--stop,-r,--reverse-prompt", "run,chat", "Text that ends the answer; repeatable"}.takes("TEXT").in_api(
        "generate.stop"),
    Setting{"--temp,--temperature", "run,chat", "0 is greedy"}
        .under("Sampling")
        .from(0, 1000)
        .with_default()
        .in_api("generate.temperature"),
    Setting{"--top-k", "run,chat", "Only the k best tokens; 0: all"}
        .under("Sampling")
        .from(0)
        .with_default()
        .in_api("generate.top_k"),
    Setting{"--top-p", "run,chat", "The best tokens with this much probability together; 1: all"}
        .under("Sampling")
        .from(kLeast, 1)
        .with_default()
        .in_api("generate.top_p"),
    Setting{"--min-p", "run,chat", "Tokens at least this likely, relative to the best"}
        .under("Sampling")
        .from(0, 1 - kLeast)
        .with_default()
        .in_api("generate.min_p"),
    Setting{"--typical,--typical-p", "run,chat", "Tokens of the usual surprise with this much probability; 1: all"}
        .under("Sampling")
        .from(kLeast, 1)
        .with_default()
        .in_api("generate.typical_p"),
    Setting{"--top-n-sigma,--top-nsigma", "run,chat",
            "Tokens whose logits are within so many standard deviations of the best; 0: all"}
        .under("Sampling")
        .from(0, 1000)
        .with_default()
        .in_api("generate.top_n_sigma"),
    Setting{"--xtc-probability", "run,chat", "How often XTC leaves out all likely tokens but the least likely of them"}
        .under("Sampling")
        .from(0, 1)
        .with_default()
        .in_api("generate.xtc_probability"),
    Setting{"--xtc-threshold", "run,chat", "From which probability on a token is likely for XTC"}
        .under("Sampling")
        .from(kLeast, 1)
        .with_default()
        .in_api("generate.xtc_threshold"),
    Setting{"--repeat-penalty", "run,chat", "Above 1 makes repetitions rarer"}
        .under("Sampling")
        .from(kLeast, 1000)
        .with_default()
        .in_api("generate.repeat_penalty"),
    Setting{"--repeat-last-n", "run,chat", "How far back repetitions count; -1: all"}
        .under("Sampling")
        .from(-1)
        .with_default()
        .in_api("generate.repeat_last"),
    Setting{"--presence-penalty", "run,chat", "Taken from the logit of a token that was there before"}
        .under("Sampling")
        .from(-1000, 1000)
        .with_default()
        .in_api("generate.presence_penalty"),
    Setting{"--frequency-penalty", "run,chat", "The same for each time it was there"}
        .under("Sampling")
        .from(-1000, 1000)
        .with_default()
        .in_api("generate.frequency_penalty"),
    Setting{"--dry-multiplier", "run,chat", "Makes repeating whole passages rarer; 0: off"}
        .under("Sampling")
        .from(0, 1000)
        .with_default(),
    Setting{"--dry-base", "run,chat", "How that grows with the length of the passage"}
        .under("Sampling")
        .from(1, 1000)
        .with_default(),
    Setting{"--dry-allowed-length", "run,chat", "Passages so short may repeat"}
        .under("Sampling")
        .from(0)
        .with_default(),
    Setting{"--dry-penalty-last-n", "run,chat", "How far back passages count; -1: all"}
        .under("Sampling")
        .from(-1)
        .with_default(),
    Setting{"--dry-sequence-breaker", "run,chat", "Strings that passages do not reach across; repeatable"}
        .under("Sampling")
        .takes("TEXT"),
    Setting{"--mirostat", "run,chat", "1 or 2: keep the surprise near a goal, in place of top-k, top-p, ..."}
        .under("Sampling")
        .from(0, 2)
        .with_default(),
    Setting{"--mirostat-lr", "run,chat", "How fast it follows"}.under("Sampling").from(kLeast, 1000).with_default(),
    Setting{"--mirostat-ent", "run,chat", "The goal, in bits"}.under("Sampling").from(kLeast, 1000).with_default(),
    Setting{"-l,--logit-bias", "run,chat", "ID+NUMBER or ID-NUMBER: make a token likelier or rarer; ID-inf forbids it"}
        .under("Sampling")
        .takes("ID+N")
        .in_api("generate.logit_bias"),
    Setting{"--grammar", "run,chat", "GBNF grammar the answer must follow"}
        .under("Sampling")
        .takes("TEXT")
        .in_api("generate.grammar"),
    Setting{"--grammar-file", "run,chat", "The same from a file"}.under("Sampling").reading(Reads::file).takes("FILE"),
    Setting{"-j,--json-schema", "run,chat", "JSON schema the answer must fit; {}: any JSON"}
        .under("Sampling")
        .takes("JSON")
        .in_api("generate.json_schema"),
    Setting{"--json-schema-file", "run,chat", "The same from a file"}
        .under("Sampling")
        .reading(Reads::file)
        .takes("FILE"),
    Setting{"-m,--model,--model_name_or_path,model", "run,chat", "GGUF file or Hugging Face folder"}
        .reading(Reads::model)
        .required()
        .takes("FILE"),
    Setting{"-p,--prompt,prompt", "run",
            "The text to continue, which may be empty where the model has a token that begins a text; - reads it from "
            "standard input, and a pipe or file on standard input follows it. Without it, lines are read from the "
            "terminal"},
    Setting{"-f,--file", "run", "File with the prompt, which follows that of -p"}
        .reading(Reads::file)
        .takes("FILE")
        .as_variable("LUMEN_PROMPT_FILE"),
    Setting{"--prompts", "run",
            "File with a prompt on each line (.jsonl: {\"prompt\": TEXT}), all continued, several at once"}
        .under("Many prompts")
        .reading(Reads::file)
        .takes("FILE"),
    Setting{"--parallel,--np", "run", "Sequences generated at once, up to 256 (also -np); without it 8"}.under(
        "Many prompts"),
    Setting{"--sequences,--ns", "run",
            "Continuations of each prompt, with seeds counted from --seed (also -ns); with one prompt as many as "
            "--parallel"}
        .under("Many prompts")
        .from(1, 100000)
        .as_variable("LUMEN_SEQUENCES"),
    Setting{"--json", "run", "Print a JSON object for each of many sequences"}
        .under("Many prompts")
        .as_variable("LUMEN_RUN_JSON"),
    Setting{"--no-display-prompt", "run", "Print the continuation only"},
    Setting{"--markdown,!--no-markdown", "run,chat", "Show Markdown in colours on a terminal; also off with NO_COLOR"},
    Setting{"--history,!--no-history", "run,chat",
            "Keep what is typed on a terminal in ~/.local/state/lumen, for the arrow keys"},
    Setting{"--explain", "run", "Print the kernels of one step and their times"}.under("Computation"),
    Setting{"--system,--system-prompt", "chat", "How the model shall answer"},
    Setting{"-p,--prompt", "chat", "The first question"},
    Setting{"--load", "chat", "Go on with a conversation, as /save writes it"}
        .under("Conversation")
        .reading(Reads::file)
        .takes("FILE"),
    Setting{"--chat-template,--chat-template-file", "chat",
            "Template of the conversation: a file with Jinja, or plain, chatml; default: the model's own"}
        .reading(Reads::file)
        .takes("FILE|NAME")
        .in_api("chat.template"),
    Setting{"--chat-template-kwargs", "chat", "More values for the template, as JSON"}
        .under("Conversation")
        .takes("JSON")
        .in_api("chat.template_values"),
    Setting{"--times", "chat", "Tell tokens and their rates after each answer"}.under("Conversation"),
    Setting{"--show-prompt", "chat",
            "Print exactly what the model would read (--system, --load, -p through the template), and end"}
        .under("Conversation")
        .no_variable(),
    Setting{"--ids", "chat", "With --show-prompt: its token ids"}.under("Conversation").no_variable(),
};

}  // namespace

std::span<const Setting> generating_rows() {
  return kRows;
}

}  // namespace lumen::cli
