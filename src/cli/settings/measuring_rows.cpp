// Options of commands that measure models: bench, perplexity, compare, eval, embed.
#include "cli/settings/rows.h"

namespace lumen::cli {
namespace {

constexpr Setting kRows[] = {
    Setting{"-m,--model", "bench", "GGUF file or Hugging Face folder; repeatable"}
        .reading(Reads::model, "FILE")
        .as_variable("LUMEN_BENCH_MODEL"),
    Setting{"--shape,--size", "bench", "A named size with random weights instead of a file"}.takes("SIZE").as_variable(
        "LUMEN_BENCH_SHAPE"),
    Setting{"--type", "bench", "Formats or mixtures of the random weights"}
        .list()
        .takes("TYPE,...")
        .as_variable("LUMEN_BENCH_TYPE"),
    Setting{"--write", "bench", "Write the random model (with a vocabulary) and measure nothing"}.writing(Writes::file,
                                                                                                          "FILE"),
    Setting{"-p,--n-prompt", "bench", "Prompt lengths, each read at once; 0: none"}.list().with_default().from(0),
    Setting{"-n,--n-gen", "bench", "Numbers of tokens to generate one by one; 0: none"}.list().with_default().from(0),
    Setting{"--pg", "bench", "A prompt and the tokens generated after it, timed together; repeatable"}.takes("P,N"),
    Setting{"-d,--n-depth", "bench", "Tokens already in the cache before each test"}.list().with_default().from(0),
    Setting{
        "--sequences,--parallel,--npl,--texts", "bench",
        "Numbers of sequences generated together, with sampling as in `lumen run`; by default one, without sampling"}
        .list()
        .as_variable("LUMEN_BENCH_SEQUENCES"),
    Setting{"-r,--repetitions", "bench", "Timed runs of each test"}.with_default().from(1, 1000000),
    Setting{"-b,--batch-size,--ubatch-size", "bench", "Prompt tokens computed at once"}
        .under("Context and cache")
        .with_default()
        .from(1),
    Setting{"-o,--output", "bench", "md, csv, json or jsonl"}.with_default().takes("FORM").as_variable(
        "LUMEN_BENCH_OUTPUT"),
    Setting{"--no-warmup", "bench", "Also count the first run, which compiles"}.under("Computation"),
    Setting{"--cpu-time", "bench", "Measure processor time instead of wall time: for a busy machine, with -t 1"}.under(
        "Computation"),
    Setting{"--explain", "bench",
            "Also print each kernel's plan, time, and fraction of the ceiling that binds it, on stderr"}
        .under("Computation"),
    Setting{"-m,--model,model", "perplexity", "GGUF file or Hugging Face folder"}
        .reading(Reads::model, "FILE")
        .required(),
    Setting{"-f,--file", "perplexity,compare", "Text, .jsonl or folder; without it, the built-in validation text"}
        .reading(Reads::data, "FILE")
        .as_variable("LUMEN_TEXT_FILE"),
    Setting{"--full", "perplexity,compare",
            "Score every token of a window but the first; by default only the second half"}
        .in_api("perplexity.full"),
    Setting{"--bos", "perplexity",
            "Position of BOS if the tokenizer adds one: front (of the whole text and of each window), windows (of each "
            "window only), none"}
        .with_default()
        .one_of("front windows none")
        .in_api("perplexity.bos"),
    Setting{"--record-logits", "perplexity", "Write the model's log probabilities to a file; print no figures"}
        .under("Divergence")
        .writing(Writes::file, "FILE"),
    Setting{"--kl-divergence", "perplexity", "Compare with the recorded log probabilities of another model"}
        .under("Divergence")
        .reading(Reads::file, "FILE"),
    Setting{"models", "compare", "GGUF files or Hugging Face folders; the others are compared with the first"}
        .reading(Reads::model, "BASE MODEL..")
        .required(),
    Setting{"--bos", "compare", "Position of BOS, as for `lumen perplexity`: front, windows, none"}
        .with_default()
        .one_of("front windows none"),
    Setting{"--one-by-one", "compare",
            "Load one model at a time and store the base's log probabilities in a file; automatic where memory is too "
            "small for all"}
        .under("Computation"),
    Setting{"--scratch", "compare", "Folder of that file; by default the system's folder for temporary files"}
        .under("Computation")
        .writing(Writes::folder_of_cache, "DIR"),
    Setting{"--no-speed", "compare", "Do not measure the speed of the models"}.under("Computation"),
    Setting{"--tasks", "compare", "Tasks of `lumen eval`, separated by commas"}.under("Tasks").list().takes("NAME,.."),
    Setting{"--task-file", "compare,eval", "File with a task of your own (docs/guide/evaluating.md); repeatable"}
        .under("Tasks")
        .reading(Reads::file, "FILE"),
    Setting{"--data", "compare", "Folder with the tasks' data"}
        .under("Tasks")
        .reading(Reads::tasks, "DIR")
        .as_variable("LUMEN_TASK_DATA"),
    Setting{"--allow-outside-data", "compare,eval",
            "Allow tasks to name files outside of that folder, through .., links or absolute paths"}
        .under("Tasks"),
    Setting{"--limit", "compare", "Only the first rows of each task; 0: all"}.under("Tasks").with_default().from(0),
    Setting{"--json", "compare", "Write the figures as a document that `lumen report` reads"}.writing(Writes::file,
                                                                                                      "FILE"),
    Setting{"--html", "compare", "Write the figures as a page"}.writing(Writes::file, "FILE"),
    Setting{"-m,--model,model", "eval", "GGUF file or Hugging Face folder"}.reading(Reads::model, "FILE"),
    Setting{"--tasks", "eval", "Names of tasks, separated by commas; see --list"}.list().takes("NAME,.."),
    Setting{"--data", "eval", "Folder with the tasks' data"}
        .reading(Reads::tasks, "DIR")
        .as_variable("LUMEN_TASK_DATA"),
    Setting{"--list", "eval", "List the tasks"}.no_variable(),
    Setting{"--num-fewshot,--num_fewshot", "eval", "Examples before each question; by default the task's number"}.from(
        0, 1000),
    Setting{"--limit", "eval", "Only the first rows; 0: all"}.with_default().from(0),
    Setting{"-s,--seed", "eval", "Seed that chooses the examples"}.with_default(),
    Setting{"-c,--ctx-size", "eval", "Context length; 0: the model's"}
        .under("Computation")
        .with_default()
        .from(0, 1 << 24),
    Setting{"--parallel", "eval", "Sequences generated at once"}.under("Computation").with_default().from(1, 256),
    Setting{"-o,--output", "eval", "Write the figures to this file, as JSON"}.writing(Writes::file, "FILE"),
    Setting{"--log-samples,--log_samples", "eval", "Write prompts and answers to this file, as JSON lines"}
        .under("Tasks")
        .writing(Writes::file, "FILE"),
    Setting{"-m,--model,--model_name_or_path", "embed",
            "GGUF file or Hugging Face folder; without -m the first argument"}
        .reading(Reads::model, "FILE")
        .as_variable("LUMEN_EMBED_MODEL"),
    Setting{"text,-p,--prompt", "embed", "Inputs; without them and --file, each line of standard input is one"}
        .reading(Reads::model)
        .no_variable(),
    Setting{"-f,--file", "embed", "File with an input on each line"}
        .reading(Reads::file, "FILE")
        .as_variable("LUMEN_EMBED_FILE"),
    Setting{
        "--pooling", "embed",
        "How the vectors of tokens are combined: mean, cls (the first), last, max, mean-sqrt-len (the sum divided by "
        "the root of the number of tokens), weighted (later tokens count more), or none; by default the model's own, "
        "else mean"}
        .one_of("mean cls last max mean-sqrt-len weighted none")
        .in_api("embed.pooling"),
    Setting{"--prompt-name", "embed",
            "Name of the model's prompt that is placed before each input (config_sentence_transformers.json); none: no "
            "prompt; by default the one that the model names"}
        .takes("NAME"),
    Setting{"--normalize,--embd-normalize", "embed",
            "2: to length 1; 1 or above 2: by that norm; 0: to the largest magnitude 32760; -1: not at all"}
        .with_default()
        .from(-1, 64)
        .in_api("embed.normalize"),
    Setting{"--format,--embd-output-format", "embed",
            "plain: a line for each vector; array: a JSON array; json: as OpenAI's API; json+: with cosines"}
        .with_default()
        .one_of("plain array json json+")
        .as_variable("LUMEN_EMBED_FORMAT"),
    Setting{"--cosine", "embed",
            "Print the cosines of all pairs of inputs instead of the vectors (with json: in addition)"}
        .under("Comparing"),
    Setting{"-c,--ctx-size", "embed", "Most tokens of an input; 0: the model's context"}
        .with_default()
        .from(0)
        .as_variable("LUMEN_EMBED_CTX_SIZE"),
    Setting{"--truncate", "embed", "Cut off the end of longer inputs, with a warning"},
    Setting{"-b,--batch-size", "embed", "Tokens computed at once, from as many inputs as fit; 1: one input at a time"}
        .under("Computation")
        .with_default()
        .from(1)
        .as_variable("LUMEN_EMBED_BATCH_SIZE"),
    Setting{"-o,--output", "embed", "File to write instead of standard output"}.writing(Writes::file, "FILE"),
    Setting{"--pairs", "embed",
            "Rows with two texts and their similarity (.tsv, .csv, .json, .jsonl, .parquet): print the correlation of "
            "cosines with the scores"}
        .under("Comparing")
        .reading(Reads::file, "FILE"),
    Setting{"--fields", "embed", "Names of the texts and the score in --pairs; a dot selects a field of an object"}
        .under("Comparing")
        .with_default(),
    Setting{"--against", "embed",
            "Another model, such as a quantized one: print how similar its vectors are; repeatable"}
        .under("Comparing")
        .reading(Reads::model, "FILE"),
};

}  // namespace

std::span<const Setting> measuring_rows() {
  return kRows;
}

}  // namespace lumen::cli
