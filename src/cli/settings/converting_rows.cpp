// Options of commands that make one model file of another.
#include "cli/settings/rows.h"

namespace lumen::cli {
namespace {

constexpr Setting kRows[] = {
    Setting{"-f,--file,--calibration", "quantize,rewrite,correct,recover",
            "Text, .jsonl or folder to calibrate on, of chats through the model's template; repeatable, each with a "
            "fair share of the windows; without it, the built-in one"}
        .under("Text")
        .reading(Reads::data)
        .takes("FILE")
        .one_each()
        .as_variable("LUMEN_CALIBRATION_FILE"),
    Setting{"-c,--ctx-size", "quantize,rewrite,correct,recover", "Tokens of a window of that text"}
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
    Setting{"--chunks", "quantize,rewrite,correct,recover", "Only so many windows; 0 takes all"}
        .under("Text")
        .takes("N")
        .with_default()
        .from(0),
    Setting{"--bos", "quantize,rewrite,correct,recover",
            "Where BOS stands: front, windows, none (as `lumen perplexity`)"}
        .under("Text")
        .takes("PLACE")
        .with_default()
        .one_of("front windows none"),
    Setting{"--calibration-precision", "quantize,rewrite,correct,recover",
            "Float type that operands of products are rounded to while calibrating"}
        .under("Text")
        .takes("TYPE")
        .with_default(),
    Setting{"input", "quantize", "GGUF file, or a Hugging Face folder"}.reading(Reads::model).required().takes("IN"),
    Setting{"output", "quantize", "GGUF file, or folder, to write"}
        .writing(Writes::model_or_input)
        .required()
        .takes("OUT"),
    Setting{"--overwrite", "quantize,export", "OUT may be IN or a part of it; other files are replaced without it"}
        .no_variable(),
    Setting{"type", "quantize", "Format or mixture; the names are below. Not with --budget"}.takes("TYPE"),
    Setting{"nthreads", "quantize", "Threads, as --threads"}.takes("N").from(1, 4096),
    Setting{"--output-format", "quantize", "A GGUF file, a folder of plain weights, or one of packed weights"}
        .under("Output")
        .with_default(),
    Setting{"--split-max-size", "quantize", "Several GGUF files of at most about this size"}.under("Output").takes(
        "SIZE"),
    Setting{"--max-shard-size", "quantize", "Several safetensors files of at most about this size"}
        .under("Output")
        .takes("SIZE"),
    Setting{"--tensor-type", "quantize", "Format of the tensors a regular expression finds; repeatable"}
        .under("Single tensors")
        .takes("REGEX=FORMAT"),
    Setting{"--output-tensor-type", "quantize", "Format of the output matrix"}.under("Single tensors").takes("FORMAT"),
    Setting{"--token-embedding-type", "quantize", "Format of the token embedding"}
        .under("Single tensors")
        .takes("FORMAT"),
    Setting{"--recipe", "quantize", "Options by the name of a recipe, or from a .toml; those given here stay"}
        .reading(Reads::file)
        .takes("NAME|FILE")
        .as_variable("LUMEN_QUANTIZE_RECIPE"),
    Setting{"--imatrix", "quantize", "Importance matrix (`lumen imatrix`): formats with fit(x, w) choose scales by it"}
        .reading(Reads::file)
        .takes("FILE"),
    Setting{"--fallback", "quantize",
            "Format to take where a tensor's rows do not divide into blocks; repeatable, tried in order. Without it "
            "such a tensor is an error"}
        .under("Single tensors")
        .takes("FORMAT"),
    Setting{"--pure", "quantize", "The same format for every matrix"}.under("Single tensors"),
    Setting{"--leave-output-tensor", "quantize", "Do not touch the output matrix"}.under("Single tensors"),
    Setting{"--train-tables", "quantize",
            "Train the tables of the formats on this model's weights, one for each format; the file carries them"}
        .under("Single tensors"),
    Setting{"--allow-requantize", "quantize", "Start from weights that are already rounded"},
    Setting{"--dry-run", "quantize", "Say what sizes would be; compute and write nothing"}.no_variable(),
    Setting{"--activations", "quantize",
            "Format that what the layers' matrices read is held in while the model runs; alone, without TYPE, weights "
            "stay as they are; none leaves out what the model says of them and of caches"}
        .under("Activations")
        .takes("FORMAT"),
    Setting{"--activation-scales", "quantize",
            "Fitted while the model runs (dynamic), or calibrated on the text and kept in the file (static)"}
        .under("Activations")
        .one_of("dynamic static")
        .with_default(),
    Setting{"--activation-reach", "quantize",
            "How far static scales reach: to the largest number seen, or so that squared errors are least (error), "
            "which clips the few numbers that stand out"}
        .under("Activations")
        .one_of("largest error")
        .with_default(),
    Setting{"--keep-spikes", "quantize",
            "Format of weights and activations of projections where single tokens stand out"}
        .under("Activations")
        .takes("FORMAT"),
    Setting{"--spike-ratio", "quantize",
            "Ratio of a window's largest token to its median token, in the inputs of a projection"}
        .under("Activations")
        .from(1.0, 1e9)
        .with_default(),
    Setting{"--spike-gain", "quantize",
            "Keep only projections that take so many nats from the KL divergence (0.003), measured one after another; "
            "0: all with spikes"}
        .under("Activations")
        .from(0.0, 1e9)
        .takes("NATS")
        .with_default(),
    Setting{"--keep-random", "quantize", "Keep as many other projections instead, drawn by this seed: a control"}
        .under("Activations")
        .from(0, UINT32_MAX)
        .takes("SEED"),
    Setting{"--cache-type-k,--ctk", "quantize", "Format of the keys in the cache that the file asks for"}
        .under("Activations")
        .takes("FORMAT")
        .as_variable("LUMEN_QUANTIZE_CACHE_TYPE_K"),
    Setting{"--cache-type-v,--ctv", "quantize", "Format of the values in the cache that the file asks for"}
        .under("Activations")
        .takes("FORMAT")
        .as_variable("LUMEN_QUANTIZE_CACHE_TYPE_V"),
    Setting{"--cache-scales", "quantize",
            "Scales of keys and values: fitted while the model runs (dynamic), or calibrated on the text, one for each "
            "layer (static)"}
        .under("Activations")
        .one_of("dynamic static")
        .with_default(),
    Setting{"--strategy", "quantize", "Round layer by layer; names between commas, the last one rounds"}
        .under("Strategies")
        .takes("NAMES"),
    Setting{"--damp-percent", "quantize", "Damping of Hessians, of the mean of their diagonal"}
        .under("Strategies")
        .takes("PART")
        .with_default()
        .from(0.0, 1.0),
    Setting{"--desc-act", "quantize", "Columns in the order of their importance"}.under("Strategies"),
    Setting{"--iterations", "quantize", "Steps of strategies that learn; 0: what each usually takes"}
        .under("Strategies")
        .takes("N")
        .with_default()
        .from(0, 1000000),
    Setting{"--rate", "quantize", "Rate at which they begin; 0: what each usually takes"}
        .under("Strategies")
        .takes("RATE")
        .with_default()
        .from(0.0, 100.0)
        .as_variable("LUMEN_QUANTIZE_RATE"),
    Setting{"--step-windows", "quantize", "Windows of the text that a step of them looks at"}
        .under("Strategies")
        .takes("N")
        .with_default()
        .from(1, 4096),
    Setting{"--smoothing-strength", "quantize", "How much of what stands out of activations goes into weights"}
        .under("Strategies")
        .takes("PART")
        .with_default()
        .from(0.0, 1.0),
    Setting{"--low-rank", "quantize",
            "Beside every rounded matrix of the layers a branch of this rank, in the same file"}
        .under("Low rank")
        .from(1, 1 << 16)
        .takes("R"),
    Setting{"--low-rank-method", "quantize",
            "svdquant: of the weight, whose rest is rounded; eora, lqer: of what rounding took"}
        .under("Low rank")
        .takes("NAME")
        .with_default(),
    Setting{"--low-rank-format", "quantize", "Format that these branches are held in"}
        .under("Low rank")
        .takes("FORMAT")
        .with_default(),
    Setting{"--budget", "quantize",
            "Choose a format for every weight: 4.2bpw, 3.5GB, 900MiB, kl=0.02, ppl=+1%, 12ms (products of a token)"}
        .under("Budget")
        .takes("BUDGET"),
    Setting{"--candidates", "quantize",
            "Formats to choose among; without it, all that GGUF has a type for, of at most 16 bits"}
        .under("Budget")
        .list()
        .takes("FORMATS"),
    Setting{"--criteria", "quantize",
            "What formats are chosen by: loss (predicted), or outputs (of layers, attentions and largest numbers, too)"}
        .under("Budget")
        .takes("NAME")
        .with_default()
        .one_of("loss outputs"),
    Setting{"--as-fast-as", "quantize",
            "Only formats whose products with a weight take no longer on this machine than with this one"}
        .under("Budget")
        .takes("FORMAT"),
    Setting{"--score-chunks", "quantize", "Windows that what formats cost is predicted on"}
        .under("Budget")
        .takes("N")
        .with_default()
        .from(1, 1 << 20),
    Setting{"--high-impact", "quantize",
            "Hold the most important columns of weights in this format; with --budget any of several"}
        .under("Important columns and experts")
        .list()
        .takes("FORMATS"),
    Setting{"--high-ratio", "quantize",
            "Their share: 0.05 by default, or of weights that a regular expression finds; with --budget shares to "
            "choose among (0.02,0.05,0.1,0.15,0.2)"}
        .under("Important columns and experts")
        .list()
        .takes("[REGEX=]SHARE"),
    Setting{"--experts", "quantize",
            "Hold the experts of mixtures in these formats, of falling bits, each by how much it matters"}
        .under("Important columns and experts")
        .list()
        .takes("FORMATS"),
    Setting{"--expert-bits", "quantize", "What they have on average at most; without it the classes decide"}
        .under("Important columns and experts")
        .from(0.1, 64.0)
        .takes("BITS"),
    Setting{"--json", "quantize", "Write what was done to each weight, and with --budget what was chosen and measured"}
        .under("Reports")
        .takes("FILE")
        .writing(Writes::file),
    Setting{"--html", "quantize", "The same as a page"}.under("Reports").takes("FILE").writing(Writes::file),
    Setting{"--compare-formats,--beside", "quantize",
            "Formats or mixtures that the report of --budget also shows. They are quantized with an importance matrix "
            "of the same text, and measured on the same windows"}
        .under("Budget")
        .list()
        .takes("NAMES"),
    Setting{"--work-folder", "quantize", "Where what is done is kept until OUT is written; OUT.work by default"}
        .under("Strategies")
        .takes("FOLDER")
        .writing(Writes::folder)
        .no_variable(),
    Setting{"--restart", "quantize", "Throw away what an earlier run has left in the work folder"}
        .under("Strategies")
        .no_variable(),
    Setting{"-m,--model,model", "imatrix", "GGUF file or Hugging Face folder"}
        .reading(Reads::model)
        .takes("FILE")
        .as_variable("LUMEN_IMATRIX_MODEL"),
    Setting{"-f,--file", "imatrix",
            "Text, .jsonl or folder to run the model over, of chats through its template; without it, the built-in one"}
        .reading(Reads::data)
        .takes("FILE")
        .as_variable("LUMEN_CALIBRATION_FILE"),
    Setting{"-o,--output,--output-file", "imatrix", "Importance matrix to write"}
        .writing(Writes::file)
        .with_default()
        .takes("FILE"),
    Setting{"--output-format", "imatrix", "gguf, or dat: the older form, for older programs"}
        .with_default()
        .one_of("gguf dat")
        .as_variable("LUMEN_IMATRIX_FORMAT"),
    Setting{"--in-file", "imatrix", "Importance matrices to add; repeatable. Without a model they are joined"}
        .reading(Reads::file)
        .takes("FILE"),
    Setting{"--bos", "imatrix", "Where BOS stands: front, windows, none (as `lumen perplexity`)"}.with_default().one_of(
        "front windows none"),
    Setting{"--process-output", "imatrix", "Measure the output matrix, too"},
    Setting{"input", "export", "GGUF file, Hugging Face folder, or hf:USER/REPO"}
        .reading(Reads::model)
        .required()
        .takes("IN"),
    Setting{"output", "export", "NAME.gguf, or a folder"}.writing(Writes::model_or_input).required().takes("OUT"),
    Setting{"--to,--output-format", "export", "What to write; by default what the name says"}.as_variable(
        "LUMEN_EXPORT_TO"),
    Setting{"--type", "export", "Float format all matrices are decoded to"}.takes("FORMAT").as_variable(
        "LUMEN_EXPORT_TYPE"),
    Setting{"--split-max-size", "export", "Several GGUF files of at most about this size"}.takes("SIZE"),
    Setting{"--max-shard-size", "export", "Several safetensors files of at most about this size"}.takes("SIZE"),
    Setting{"base", "merge", "The model: GGUF file, Hugging Face folder, or hf:USER/REPO"}
        .reading(Reads::model)
        .required()
        .takes("BASE"),
    Setting{"adapter", "merge", "GGUF adapters or PEFT folders; several add up"}
        .reading(Reads::model)
        .required()
        .takes("ADAPTER[=SCALE]"),
    Setting{"-o,--out,--output", "merge", "NAME.gguf, or a folder"}.writing(Writes::model).required().takes("OUT"),
    Setting{"--to", "merge", "What to write; by default what the name says"}.one_of("gguf hf").as_variable(
        "LUMEN_MERGE_TO"),
    Setting{"--type", "merge", "What weights are held in: base (each as in BASE), a format, or a mixture of formats"}
        .with_default()
        .takes("FORMAT")
        .as_variable("LUMEN_MERGE_TYPE"),
    Setting{"--scale", "merge", "Times every adapter's own"}.with_default().as_variable("LUMEN_MERGE_SCALE"),
    Setting{"--fallback", "merge", "Format to take where rows do not divide into blocks; repeatable"}.takes("FORMAT"),
    Setting{"--check", "merge",
            "Held-out text over which the result is compared with model and adapter; without it the end of the "
            "built-in text"}
        .under("Check")
        .reading(Reads::data)
        .takes("TEXT")
        .as_variable("LUMEN_MERGE_CHECK"),
    Setting{"--max-kl", "merge",
            "Nats per token the result may be away; more ends with exit code 5, and nothing is written"}
        .under("Check")
        .from(0),
    Setting{"-c,--ctx-size", "merge", "Tokens of a window of the check; by default up to 512"}
        .under("Check")
        .from(4, 1 << 20)
        .as_variable("LUMEN_WINDOW_SIZE"),
    Setting{"--chunks", "merge", "Windows of the check; 0 takes all"}.under("Check").with_default().from(0).as_variable(
        "LUMEN_MERGE_CHUNKS"),
    Setting{"--no-check", "merge", "Compare nothing"}.under("Check").as_variable("LUMEN_MERGE_NO_CHECK"),
    Setting{"--overwrite", "merge", "Replace what is at OUT; inputs are never replaced"}.no_variable(),
};

}  // namespace

std::span<const Setting> converting_rows() {
  return kRows;
}

}  // namespace lumen::cli
