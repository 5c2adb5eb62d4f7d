// Options of commands that measure models: bench, perplexity, compare, eval, embed.
#include "cli/settings/rows.h"

namespace lumen::cli {
namespace {

constexpr Setting kRows[] = {
    Setting{"-m,--model", "bench", "GGUF file or Hugging Face folder; repeatable"}
        .reading(Reads::model)
        .takes("FILE")
        .as_variable("LUMEN_BENCH_MODEL"),
    Setting{"--shape,--size", "bench", "A named size with random weights instead of a file"}.takes("SIZE").as_variable(
        "LUMEN_BENCH_SHAPE"),
    Setting{"--type", "bench", "Formats or mixtures of the random weights"}
        .list()
        .takes("TYPE,...")
        .as_variable("LUMEN_BENCH_TYPE"),
    Setting{"--write", "bench", "Write the random model (with a vocabulary) and measure nothing"}
        .writing(Writes::file)
        .takes("FILE"),
    Setting{"-p,--n-prompt", "bench", "Lengths of prompts read at once; 0: none"}.list().with_default().from(0),
    Setting{"-n,--n-gen", "bench", "Numbers of tokens generated one by one; 0: none"}.list().with_default().from(0),
    Setting{"--pg", "bench", "A prompt and then tokens, timed together; repeatable"}.takes("P,N"),
    Setting{"-d,--n-depth", "bench", "Tokens already in the cache before each test"}.list().with_default().from(0),
    Setting{"--sequences,--parallel,--npl,--texts", "bench",
            "Numbers of sequences computed together, tokens drawn as by `lumen run`; without it one, no draws"}
        .list()
        .as_variable("LUMEN_BENCH_SEQUENCES"),
    Setting{"-r,--repetitions", "bench", "Timed runs of each test"}.with_default().from(1, 1000000),
    Setting{"-b,--batch-size,--ubatch-size", "bench", "Prompt tokens computed at once"}
        .under("Context and cache")
        .with_default()
        .from(1),
    Setting{"-o,--output", "bench", "md, csv, json or jsonl"}.with_default().takes("FORM").as_variable(
        "LUMEN_BENCH_OUTPUT"),
    Setting{"--no-warmup", "bench", "Count the first run too, with compilation"}.under("Computation"),
    Setting{"--cpu-time", "bench",
            "Count the time the process computes, not the time that passes: for a busy machine, with -t 1"}
        .under("Computation"),
    Setting{"--explain", "bench",
            "Also print each kernel's plan, time, and fraction of the ceiling that binds it, on stderr"}
        .under("Computation"),
    Setting{"-m,--model,model", "perplexity", "GGUF file or Hugging Face folder"}
        .reading(Reads::model)
        .required()
        .takes("FILE"),
    Setting{"-f,--file", "perplexity,compare", "Text, .jsonl or folder; without it, the built-in validation text"}
        .reading(Reads::data)
        .takes("FILE")
        .as_variable("LUMEN_TEXT_FILE"),
    Setting{"--full", "perplexity,compare", "Score every token of a window but the first, not only the second half"}
        .in_api("perplexity.full"),
    Setting{"--bos", "perplexity",
            "Where BOS stands, when the tokenizer wants one: front (of the text before it is cut, and of each window), "
            "windows (of each one), none"}
        .with_default()
        .one_of("front windows none")
        .in_api("perplexity.bos"),
    Setting{"--record-logits", "perplexity", "Write the model's log probabilities to a file, no figures"}
        .under("Divergence")
        .writing(Writes::file)
        .takes("FILE"),
    Setting{"--kl-divergence", "perplexity", "Compare with the log probabilities another model recorded"}
        .under("Divergence")
        .reading(Reads::file)
        .takes("FILE"),
    Setting{"models", "compare", "GGUF files or Hugging Face folders; the first is what the others are far from"}
        .reading(Reads::model)
        .required()
        .takes("BASE MODEL.."),
    Setting{"--bos", "compare", "Where BOS stands, as for `lumen perplexity`: front, windows, none"}
        .with_default()
        .one_of("front windows none"),
    Setting{"--one-by-one", "compare",
            "Hold one model at a time, and the base's log probabilities in a file; so it is, too, where there is no "
            "room for all"}
        .under("Computation"),
    Setting{"--scratch", "compare", "Folder of that file; without it, the system's for temporary files"}
        .under("Computation")
        .writing(Writes::folder_of_cache)
        .takes("DIR"),
    Setting{"--no-speed", "compare", "Do not measure how fast the models read and write"}.under("Computation"),
    Setting{"--tasks", "compare", "Tasks of `lumen eval`, separated by commas"}.under("Tasks").list().takes("NAME,.."),
    Setting{"--task-file", "compare,eval", "A task of your own (docs/guide/evaluating.md); repeatable"}
        .under("Tasks")
        .reading(Reads::file)
        .takes("FILE"),
    Setting{"--data", "compare", "Folder with the tasks' data"}
        .under("Tasks")
        .reading(Reads::tasks)
        .takes("DIR")
        .as_variable("LUMEN_TASK_DATA"),
    Setting{"--allow-outside-data", "compare,eval",
            "Tasks may name files outside of that folder, through .., links or from the root"}
        .under("Tasks"),
    Setting{"--limit", "compare", "Only the first rows of a task; 0 takes all"}.under("Tasks").with_default().from(0),
    Setting{"--json", "compare", "Write the figures as a document that `lumen report` reads"}
        .writing(Writes::file)
        .takes("FILE"),
    Setting{"--html", "compare", "Write them as a page"}.writing(Writes::file).takes("FILE"),
    Setting{"-m,--model,model", "eval", "GGUF file or Hugging Face folder"}.reading(Reads::model).takes("FILE"),
    Setting{"--tasks", "eval", "What to ask: names, separated by commas; see --list"}.list().takes("NAME,.."),
    Setting{"--data", "eval", "Folder with the tasks' data"}
        .reading(Reads::tasks)
        .takes("DIR")
        .as_variable("LUMEN_TASK_DATA"),
    Setting{"--list", "eval", "List the tasks"}.no_variable(),
    Setting{"--num-fewshot,--num_fewshot", "eval", "Examples in front of each question; without it as the task says"}
        .from(0, 1000),
    Setting{"--limit", "eval", "Only the first rows; 0 takes all"}.with_default().from(0),
    Setting{"-s,--seed", "eval", "Seed of the examples that are drawn"}.with_default(),
    Setting{"-c,--ctx-size", "eval", "Context length; 0: the model's"}
        .under("Computation")
        .with_default()
        .from(0, 1 << 24),
    Setting{"--parallel", "eval", "Sequences generated at once"}.under("Computation").with_default().from(1, 256),
    Setting{"-o,--output", "eval", "Write the figures to this file, as JSON"}.writing(Writes::file).takes("FILE"),
    Setting{"--log-samples,--log_samples", "eval", "Write what was asked and answered to this file, as JSON lines"}
        .under("Tasks")
        .writing(Writes::file)
        .takes("FILE"),
    Setting{"-m,--model,--model_name_or_path", "embed",
            "GGUF file or Hugging Face folder; without -m the first word after the command"}
        .reading(Reads::model)
        .takes("FILE")
        .as_variable("LUMEN_EMBED_MODEL"),
    Setting{"text,-p,--prompt", "embed", "The inputs; without them and --file, lines of standard input"}
        .reading(Reads::model)
        .no_variable(),
    Setting{"-f,--file", "embed", "File with an input on each line"}
        .reading(Reads::file)
        .takes("FILE")
        .as_variable("LUMEN_EMBED_FILE"),
    Setting{"--pooling", "embed",
            "How the vectors of tokens become one: mean, cls (the first), last, or none; without it as the model says, "
            "else mean"}
        .one_of("mean cls last none")
        .in_api("embed.pooling"),
    Setting{"--normalize,--embd-normalize", "embed",
            "2: length 1; 1 or above 2: that norm; 0: largest magnitude 32760; -1: as they are"}
        .with_default()
        .from(-1, 64)
        .in_api("embed.normalize"),
    Setting{"--format,--embd-output-format", "embed",
            "plain: a line for each vector; array: JSON without names; json: as servers answer; json+: with cosines"}
        .with_default()
        .one_of("plain array json json+")
        .as_variable("LUMEN_EMBED_FORMAT"),
    Setting{"--cosine", "embed", "Print the cosines of all pairs of inputs instead (json: in addition to the vectors)"}
        .under("Comparing"),
    Setting{"-c,--ctx-size", "embed", "Tokens of an input at most; 0: the model's context"}
        .with_default()
        .from(0)
        .as_variable("LUMEN_EMBED_CTX_SIZE"),
    Setting{"--truncate", "embed", "Leave out the end of inputs that are longer, with a warning"},
    Setting{"-b,--batch-size", "embed", "Tokens computed at once, of as many inputs as fit; 1: each input alone"}
        .under("Computation")
        .with_default()
        .from(1)
        .as_variable("LUMEN_EMBED_BATCH_SIZE"),
    Setting{"-o,--output", "embed", "File to write instead of standard output"}.writing(Writes::file).takes("FILE"),
    Setting{"--pairs", "embed",
            "Rows with two texts and how alike they are (.tsv, .csv, .json, .jsonl, .parquet): print how well cosines "
            "follow the scores"}
        .under("Comparing")
        .reading(Reads::file)
        .takes("FILE"),
    Setting{"--fields", "embed", "Names of the texts and the score in --pairs; a dot leads into an object"}
        .under("Comparing")
        .with_default(),
    Setting{"--against", "embed",
            "Another model, a rounded one for instance: print how close its vectors are; repeatable"}
        .under("Comparing")
        .reading(Reads::model)
        .takes("FILE"),
};

}  // namespace

std::span<const Setting> measuring_rows() {
  return kRows;
}

}  // namespace lumen::cli
