// Options of commands that make one model file of another.
#include "cli/settings/rows.h"

namespace lumen::cli {
namespace {

constexpr Setting kRows[] = {
    Setting{"-f,--file,--calibration", "quantize,rewrite,correct,recover",
            "Calibration text, .jsonl or folder; chats go through the model's template. Repeatable: each file gets the "
            "same share of the windows. By default the built-in text"}
        .under("Text")
        .reading(Reads::data, "FILE")
        .one_each()
        .as_variable("LUMEN_CALIBRATION_FILE"),
    Setting{"-c,--ctx-size", "quantize,rewrite,correct,recover", "Tokens per window of the calibration text"}
        .under("Text")
        .takes("N")
        .with_default()
        .from(4, 1 << 20)
        .as_variable("LUMEN_WINDOW_SIZE"),
    Setting{"-b,--batch-size", "quantize,rewrite,correct,recover", "Windows computed at once"}
        .under("Text")
        .takes("N")
        .with_default()
        .from(1, 4096)
        .as_variable("LUMEN_WINDOWS_AT_ONCE"),
    Setting{"--chunks", "quantize,rewrite,correct,recover", "Number of windows; 0: all"}
        .under("Text")
        .takes("N")
        .with_default()
        .from(0),
    Setting{"--bos", "quantize,rewrite,correct,recover",
            "Position of BOS: front, windows, none (as in `lumen perplexity`)"}
        .under("Text")
        .takes("PLACE")
        .with_default()
        .one_of("front windows none"),
    Setting{"--calibration-precision", "quantize,rewrite,correct,recover",
            "Float type of the operands of products during calibration"}
        .under("Text")
        .takes("TYPE")
        .with_default(),
    Setting{"input", "quantize", "GGUF file, or a Hugging Face folder"}.reading(Reads::model, "IN").required(),
    Setting{"output", "quantize", "GGUF file, or folder, to write"}.writing(Writes::model_or_input, "OUT").required(),
    Setting{"--overwrite", "quantize,export,rewrite",
            "Allow OUT to be IN or a part of it; other files are replaced without this flag"}
        .no_variable(),
    Setting{"type", "quantize", "Format or mixture (names are below); not with --budget"}.takes("TYPE"),
    Setting{"nthreads", "quantize", "Threads, the same as --threads"}.takes("N").from(1, 4096),
    Setting{"--output-format", "quantize",
            "What to write: a GGUF file, a folder of plain weights, or one of packed weights"}
        .under("Output")
        .with_default(),
    Setting{"--split-max-size", "quantize", "Write several GGUF files of at most about this size"}
        .under("Output")
        .takes("SIZE"),
    Setting{"--max-shard-size", "quantize", "Write several safetensors files of at most about this size"}
        .under("Output")
        .takes("SIZE"),
    Setting{"--tensor-type", "quantize", "Format of the tensors that match a regular expression; repeatable"}
        .under("Single tensors")
        .takes("REGEX=FORMAT"),
    Setting{"--output-tensor-type", "quantize", "Format of the output matrix"}.under("Single tensors").takes("FORMAT"),
    Setting{"--token-embedding-type", "quantize", "Format of the token embedding"}
        .under("Single tensors")
        .takes("FORMAT"),
    Setting{"--recipe", "quantize", "Take options from a recipe, by name or from a .toml file; flags override it"}
        .reading(Reads::file, "NAME|FILE")
        .as_variable("LUMEN_QUANTIZE_RECIPE"),
    Setting{"--imatrix", "quantize",
            "Importance matrix (`lumen imatrix`), for formats whose scales depend on it: fit(x, w)"}
        .reading(Reads::file, "FILE"),
    Setting{"--fallback", "quantize",
            "Format of tensors whose rows do not divide into blocks; repeatable, tried in order. Without it such a "
            "tensor is an error"}
        .under("Single tensors")
        .takes("FORMAT"),
    Setting{"--pure", "quantize", "The same format for every matrix"}.under("Single tensors"),
    Setting{"--leave-output-tensor", "quantize", "Do not quantize the output matrix"}.under("Single tensors"),
    Setting{"--train-tables", "quantize",
            "Train the tables of the formats on this model's weights, one for each format; the file contains them"}
        .under("Single tensors"),
    Setting{"--allow-requantize", "quantize", "Accept weights that are already quantized"},
    Setting{"--dry-run", "quantize", "Print the sizes; compute and write nothing"}.no_variable(),
    Setting{"--activations", "quantize",
            "Format of the activations that layers' matrices read at run time. Without TYPE, only activations are "
            "quantized. none removes the model's own settings for activations and caches"}
        .under("Activations")
        .takes("FORMAT"),
    Setting{
        "--activation-scales", "quantize",
        "dynamic: scales are computed at run time; static: scales are calibrated on the text and stored in the file"}
        .under("Activations")
        .one_of("dynamic static")
        .with_default(),
    Setting{"--activation-reach", "quantize",
            "Range of static scales: the largest value seen, or least squared error (error), which clips outliers"}
        .under("Activations")
        .one_of("largest error")
        .with_default(),
    Setting{"--keep-spikes", "quantize",
            "Format of weights and activations of projections in which single tokens have outliers (spikes)"}
        .under("Activations")
        .takes("FORMAT"),
    Setting{"--spike-ratio", "quantize",
            "A projection has spikes if a window's largest token is this many times its median token"}
        .under("Activations")
        .from(1.0, 1e9)
        .with_default(),
    Setting{"--spike-gain", "quantize",
            "Keep only projections that lower the KL divergence by this many nats (0.003), measured one after another; "
            "0: all with spikes"}
        .under("Activations")
        .from(0.0, 1e9)
        .takes("NATS")
        .with_default(),
    Setting{"--keep-random", "quantize", "For control experiments: keep as many other projections, chosen by this seed"}
        .under("Activations")
        .from(0, UINT32_MAX)
        .takes("SEED"),
    Setting{"--cache-type-k,--ctk", "quantize", "Format of the keys in the KV cache, stored in the file"}
        .under("Activations")
        .takes("FORMAT")
        .as_variable("LUMEN_QUANTIZE_CACHE_TYPE_K"),
    Setting{"--cache-type-v,--ctv", "quantize", "Format of the values in the KV cache, stored in the file"}
        .under("Activations")
        .takes("FORMAT")
        .as_variable("LUMEN_QUANTIZE_CACHE_TYPE_V"),
    Setting{"--cache-scales", "quantize",
            "Scales of keys and values: computed at run time (dynamic), or calibrated on the text, one for each layer "
            "(static)"}
        .under("Activations")
        .one_of("dynamic static")
        .with_default(),
    Setting{"--strategy", "quantize",
            "Quantize layer by layer with these methods, separated by commas; the last one rounds"}
        .under("Strategies")
        .takes("NAMES"),
    Setting{"--damp-percent", "quantize", "Damping of Hessians, as a share of the mean of the diagonal"}
        .under("Strategies")
        .takes("PART")
        .with_default()
        .from(0.0, 1.0),
    Setting{"--desc-act", "quantize", "Quantize columns in the order of their importance"}.under("Strategies"),
    Setting{"--iterations", "quantize", "Steps of methods that learn; 0: the default of each"}
        .under("Strategies")
        .takes("N")
        .with_default()
        .from(0, 1000000),
    Setting{"--rate", "quantize", "Initial learning rate of these methods; 0: the default of each"}
        .under("Strategies")
        .takes("RATE")
        .with_default()
        .from(0.0, 100.0)
        .as_variable("LUMEN_QUANTIZE_RATE"),
    Setting{"--step-windows", "quantize", "Windows of the text in each of these steps"}
        .under("Strategies")
        .takes("N")
        .with_default()
        .from(1, 4096),
    Setting{"--smoothing-strength", "quantize", "How much of the activations' outliers SmoothQuant moves into weights"}
        .under("Strategies")
        .takes("PART")
        .with_default()
        .from(0.0, 1.0),
    Setting{"--low-rank", "quantize",
            "Add a branch of this rank to every quantized matrix of the layers, in the same file"}
        .under("Low rank")
        .from(1, 1 << 16)
        .takes("R"),
    Setting{
        "--low-rank-method", "quantize",
        "svdquant: branch of the weight, whose remainder is quantized; eora, lqer: branch of the quantization error"}
        .under("Low rank")
        .takes("NAME")
        .with_default(),
    Setting{"--low-rank-format", "quantize", "Format of these branches"}
        .under("Low rank")
        .takes("FORMAT")
        .with_default(),
    Setting{"--budget", "quantize",
            "Choose a format for every weight: 4.2bpw, 3.5GB, 900MiB, kl=0.02, ppl=+1%, 12ms (products of a token)"}
        .under("Budget")
        .takes("BUDGET"),
    Setting{
        "--candidates", "quantize",
        "Formats to choose among, or gguf (the default: those with a GGUF type), or any: also formats that only Lumen "
        "reads, without those that others beat"}
        .under("Budget")
        .list()
        .takes("FORMATS"),
    Setting{"--criteria", "quantize",
            "Criteria of the choice: loss (predicted), or outputs (also errors of layer outputs, attention and largest "
            "values)"}
        .under("Budget")
        .takes("NAME")
        .with_default()
        .one_of("loss outputs"),
    Setting{"--as-fast-as", "quantize",
            "Allow only formats whose products are on this machine as fast as with this format"}
        .under("Budget")
        .takes("FORMAT"),
    Setting{"--score-chunks", "quantize", "Windows of the text on which costs of formats are predicted"}
        .under("Budget")
        .takes("N")
        .with_default()
        .from(1, 1 << 20),
    Setting{"--high-impact", "quantize",
            "Format of the most important columns of weights; with --budget one of several"}
        .under("Important columns and experts")
        .list()
        .takes("FORMATS"),
    Setting{"--high-ratio", "quantize",
            "Share of these columns: 0.05 by default, or for weights that match a regular expression; with --budget "
            "the shares to choose among (0.02,0.05,0.1,0.15,0.2)"}
        .under("Important columns and experts")
        .list()
        .takes("[REGEX=]SHARE"),
    Setting{"--experts", "quantize",
            "Formats of the experts of a mixture, from most to fewest bits; important experts get more"}
        .under("Important columns and experts")
        .list()
        .takes("FORMATS"),
    Setting{"--expert-bits", "quantize", "Largest mean bits of the experts; by default their classes decide"}
        .under("Important columns and experts")
        .from(0.1, 64.0)
        .takes("BITS"),
    Setting{"--no-measure", "quantize",
            "Do not compare the result with the model before (KL divergence, perplexity) on held-out text"}
        .under("Reports"),
    Setting{"--json", "quantize",
            "Write what was done to each weight, and with --budget what was chosen and measured, as JSON"}
        .under("Reports")
        .writing(Writes::file, "FILE"),
    Setting{"--html", "quantize", "Write this report as a page"}.under("Reports").writing(Writes::file, "FILE"),
    Setting{"--compare-formats,--beside", "quantize",
            "Formats or mixtures that the report of --budget also shows. They are quantized with an importance matrix "
            "of the same text, and measured on the same windows"}
        .under("Budget")
        .list()
        .takes("NAMES"),
    Setting{"--work-folder", "quantize", "Folder for progress until OUT is written; OUT.work by default"}
        .under("Strategies")
        .writing(Writes::folder, "FOLDER")
        .no_variable(),
    Setting{"--restart", "quantize", "Discard the progress of an earlier run in the work folder"}
        .under("Strategies")
        .no_variable(),
    Setting{"-m,--model,model", "imatrix", "GGUF file or Hugging Face folder"}
        .reading(Reads::model, "FILE")
        .as_variable("LUMEN_IMATRIX_MODEL"),
    Setting{"-f,--file", "imatrix",
            "Text, .jsonl or folder to run the model on; chats go through its template. By default the built-in text"}
        .reading(Reads::data, "FILE")
        .as_variable("LUMEN_CALIBRATION_FILE"),
    Setting{"-o,--output,--output-file", "imatrix", "Importance matrix to write"}
        .writing(Writes::file, "FILE")
        .with_default(),
    Setting{"--output-format", "imatrix", "gguf, or dat: the older format"}
        .with_default()
        .one_of("gguf dat")
        .as_variable("LUMEN_IMATRIX_FORMAT"),
    Setting{"--in-file", "imatrix", "Importance matrices to add; repeatable. Without a model they are only combined"}
        .reading(Reads::file, "FILE"),
    Setting{"--bos", "imatrix", "Position of BOS: front, windows, none (as in `lumen perplexity`)"}
        .with_default()
        .one_of("front windows none"),
    Setting{"--process-output", "imatrix", "Also measure the output matrix"},
    Setting{"input", "export", "GGUF file, Hugging Face folder, or hf:USER/REPO"}
        .reading(Reads::model, "IN")
        .required(),
    Setting{"output", "export", "NAME.gguf, or a folder"}.writing(Writes::model_or_input, "OUT").required(),
    Setting{"--to,--output-format", "export", "What to write; by default the name decides"}.as_variable(
        "LUMEN_EXPORT_TO"),
    Setting{"--type", "export", "Float format to decode all matrices to"}.takes("FORMAT").as_variable(
        "LUMEN_EXPORT_TYPE"),
    Setting{"--split-max-size", "export", "Write several GGUF files of at most about this size"}.takes("SIZE"),
    Setting{"--max-shard-size", "export", "Write several safetensors files of at most about this size"}.takes("SIZE"),
    Setting{"-m,--model,base", "merge", "The model: GGUF file, Hugging Face folder, or hf:USER/REPO"}
        .reading(Reads::model, "BASE")
        .required(),
    Setting{"--lora,adapter", "merge", "GGUF adapters or PEFT folders; several are added"}
        .reading(Reads::model, "ADAPTER[=SCALE]")
        .required(),
    Setting{"-o,--out,--output", "merge", "NAME.gguf, or a folder"}.writing(Writes::model, "OUT").required(),
    Setting{"--to", "merge", "What to write; by default the name decides"}.one_of("gguf hf").as_variable(
        "LUMEN_MERGE_TO"),
    Setting{"--type", "merge", "Format of the weights: base (each as in BASE), a format, or a mixture of formats"}
        .with_default()
        .takes("FORMAT")
        .as_variable("LUMEN_MERGE_TYPE"),
    Setting{"--scale", "merge", "Factor in addition to each adapter's own"}.with_default().as_variable(
        "LUMEN_MERGE_SCALE"),
    Setting{"--fallback", "merge", "Format of tensors whose rows do not divide into blocks; repeatable"}.takes(
        "FORMAT"),
    Setting{
        "--check", "merge",
        "Held-out text on which the result is compared with model and adapter; by default the end of the built-in text"}
        .under("Check")
        .reading(Reads::data, "TEXT")
        .as_variable("LUMEN_MERGE_CHECK"),
    Setting{"--max-kl", "merge",
            "Largest divergence of the result, in nats per token; a larger one ends with exit code 5, and nothing is "
            "written"}
        .under("Check")
        .from(0),
    Setting{"-c,--ctx-size", "merge", "Tokens per window of the check; by default up to 512"}
        .under("Check")
        .from(4, 1 << 20)
        .as_variable("LUMEN_WINDOW_SIZE"),
    Setting{"--chunks", "merge", "Windows of the check; 0: all"}.under("Check").with_default().from(0).as_variable(
        "LUMEN_MERGE_CHUNKS"),
    Setting{"--no-check", "merge", "Do not compare the result"}.under("Check").as_variable("LUMEN_MERGE_NO_CHECK"),
    Setting{"--overwrite", "merge,correct,recover", "Replace an existing output; inputs are never replaced"}
        .no_variable(),
};

}  // namespace

std::span<const Setting> converting_rows() {
  return kRows;
}

}  // namespace lumen::cli
