// Options of `lumen train`.
#include "cli/settings/rows.h"

namespace lumen::cli {
namespace {

constexpr Setting kRows[] = {
    Setting{"-r,--recipe", "train",
            "Recipe by name, or a .toml file; of several, separated by commas, later ones override earlier ones; flags "
            "override recipes"}
        .reading(Reads::file)
        .takes("NAME|FILE"),
    Setting{"-m,--model,--model_name_or_path", "train",
            "Start from this model, in any format, instead of random weights"}
        .reading(Reads::model)
        .takes("FILE")
        .as_variable("LUMEN_TRAIN_MODEL"),
    Setting{"-o,--out,--output,--output_dir,--output-dir", "train",
            "Folder for checkpoints, metrics and the model; by default lumen-out, or the folder of the resumed run"}
        .writing(Writes::folder_of_run)
        .takes("DIR"),
    Setting{"--overwrite,--overwrite_output_dir", "train",
            "Replace the model and delete the checkpoints of another run in --out"}
        .under("Checkpoints")
        .no_variable(),
    Setting{"--resume,--resume_from_checkpoint,--resume-from-checkpoint", "train",
            "Continue from a checkpoint, with its own recipe; without a value, from the latest one in --out"}
        .reading(Reads::resumed)
        .takes("[DIR]")
        .no_variable(),
    Setting{"--allow-changed-data", "train", "Resume although data files, or a teacher, have changed"}.under("Data"),
    Setting{"--allow-changed-recipe", "train",
            "Resume with rates, steps, batches or data order that differ from the checkpoint's"}
        .under("Checkpoints"),
    Setting{"--objective-setting", "train", "A number of the objective, such as label_smoothing=0.1; repeatable"}
        .under("Objective")
        .takes("NAME=NUMBER")
        .one_each(),
    Setting{"--beta", "train", "The same as --objective-setting beta=.."}.under("Objective"),
    Setting{"--report_to,--report-to", "train", "tensorboard: the same as --tensorboard; none: nothing"}
        .under("Evaluation")
        .one_of("tensorboard none"),
    Setting{"--bf16", "train", "The same as --precision bf16"}.under("Number types"),
    Setting{"--format,--qat", "train",
            "Quantization-aware training: quantize every matrix to this format in the forward pass"}
        .under("Training inside the rounding")
        .as_variable("LUMEN_TRAIN_FORMAT"),
    Setting{"--ranks,--nproc-per-node,--nproc_per_node,--num-processes,--num_processes", "train",
            "Processes on this host that share each batch, one for each GPU with --device cuda; torchrun, srun and "
            "mpirun start processes themselves"}
        .under("Several processes")
        .from(1, 256)
        .takes("N"),
    Setting{"--print-config", "train", "Print the resolved recipe and stop"}.no_variable(),
    Setting{"--plan", "train", "Print the memory of each kind and the time that the run needs; train and write nothing"}
        .no_variable(),
    Setting{"--explain", "train", "Print the kernels of one step and their times at the end"}.under("Output"),
    Setting{"--family", "train", "Model family of a new model"}.under("Model").for_key("model.family"),
    Setting{"--shape,--size", "train", "Named size of a new model"}.for_key("model.size"),
    Setting{"--data,--dataset", "train",
            "Texts, chats or pairs (.txt .md .jsonl .json .csv .tsv, also .gz), or a folder; several separated by "
            "commas; by default the built-in text"}
        .for_key("data.path")
        .takes("FILE")
        .reading(Reads::data),
    Setting{"--form,--data-form,--data_form", "train", "Kind of rows: auto, texts, chats, pairs or labels"}
        .under("Data")
        .for_key("data.form"),
    Setting{"--columns", "train", "Names of the columns: prompt=Q,completion=A"}
        .under("Data")
        .for_key("data.columns")
        .takes("NAME=COLUMN"),
    Setting{"--chat-template,--chat_template", "train",
            "Chat template by name or from a file; by default the model's own"}
        .under("Data")
        .for_key("data.chat_template")
        .takes("NAME|FILE")
        .reading(Reads::file),
    Setting{"--train-on,--train_on", "train", "Tokens of chats that are learned: assistant, last (answer) or all"}
        .under("Data")
        .for_key("data.train_on"),
    Setting{"--mix,--interleave_probs,--interleave-probs", "train", "Shares of several data sets, such as 0.7,0.3"}
        .under("Data")
        .for_key("data.mix")
        .takes("SHARE"),
    Setting{"--epochs,--num_train_epochs,--num-train-epochs,--num_epochs", "train",
            "Passes over the data, instead of --steps"}
        .for_key("data.epochs"),
    Setting{"--packing,--sample_packing,--sample-packing", "train",
            "Pack several examples into one window, without attention between them"}
        .under("Data")
        .for_key("data.packing"),
    Setting{"--overflow", "train", "What to do with examples longer than a window: cut or drop"}.under("Data").for_key(
        "data.overflow"),
    Setting{"--strict", "train", "Stop with an error at a row that cannot be used"}.under("Data").for_key(
        "data.strict"),
    Setting{"--tokenizer", "train", "characters, bytes:N (byte pairs, N tokens), or a tokenizer file"}
        .under("Data")
        .for_key("data.tokenizer")
        .reading(Reads::model),
    Setting{"-b,--batch,--batch-size,--per_device_train_batch_size", "train", "Windows per step"}.for_key("run.batch"),
    Setting{"-c,--length,--max_seq_length,--max-seq-length", "train", "Tokens per window"}
        .for_key("run.length")
        .from(1),
    Setting{"--steps,--max_steps,--max-steps", "train", "Optimizer steps"}.for_key("schedule.steps"),
    Setting{"--lr,--learning-rate,--learning_rate", "train", "Peak learning rate"}.for_key("schedule.learning_rate"),
    Setting{"--min-lr,--min-learning-rate", "train", "Learning rate at the end"}
        .under("Schedule and optimizer")
        .for_key("schedule.min_learning_rate"),
    Setting{"--warmup,--warmup-steps,--warmup_steps", "train", "Steps to the peak"}
        .under("Schedule and optimizer")
        .for_key("schedule.warmup_steps"),
    Setting{"--warmup-ratio,--warmup_ratio", "train", "Warmup as a share of all steps, rounded up"}
        .under("Schedule and optimizer")
        .for_key("schedule.warmup_ratio")
        .takes("SHARE"),
    Setting{"--schedule,--lr_scheduler_type,--lr-scheduler-type", "train",
            "cosine, linear, constant, wsd, inverse_sqrt, polynomial or cosine_restarts"}
        .under("Schedule and optimizer")
        .for_key("schedule.shape"),
    Setting{"--optimizer,--optim", "train",
            "adamw, lion, sgd, muon, adafactor, or the name of your own; adamw by default"}
        .under("Schedule and optimizer")
        .for_key("optimizer.name"),
    Setting{"--moments", "train",
            "Format of the optimizer's states of matrices between steps: f32, bf16, or any format with an encoder"}
        .under("Schedule and optimizer")
        .for_key("optimizer.moments")
        .takes("FORMAT"),
    Setting{"--second-moments", "train", "Format of the second moments; by default that of --moments"}
        .under("Schedule and optimizer")
        .for_key("optimizer.second_moments")
        .takes("FORMAT"),
    Setting{"--momentum", "train", "Momentum of the optimizer"}
        .under("Schedule and optimizer")
        .for_key("optimizer.momentum"),
    Setting{"--ema,--ema-decay,--ema_decay", "train",
            "Keep an exponential moving average of the weights with this decay; 0: none"}
        .under("Schedule and optimizer")
        .for_key("optimizer.ema_decay"),
    Setting{"--weight-decay,--weight_decay", "train", "Weight decay, for matrices only"}
        .under("Schedule and optimizer")
        .for_key("optimizer.weight_decay"),
    Setting{"--max-grad-norm,--max_grad_norm,--clip", "train", "Clip the gradient's norm to this; 0: never"}
        .under("Schedule and optimizer")
        .for_key("optimizer.max_grad_norm"),
    Setting{"--beta1,--adam_beta1", "train", "Decay of the first moment (Adam)"}
        .under("Schedule and optimizer")
        .for_key("optimizer.beta1"),
    Setting{"--beta2,--adam_beta2", "train", "Decay of the second moment (Adam)"}
        .under("Schedule and optimizer")
        .for_key("optimizer.beta2"),
    Setting{"--epsilon,--adam_epsilon", "train", "Epsilon in the optimizer's denominator (Adam)"}
        .under("Schedule and optimizer")
        .for_key("optimizer.epsilon"),
    Setting{"--accumulate,--gradient_accumulation_steps,--gradient-accumulation-steps", "train",
            "Gradient accumulation: batches per step"}
        .under("Schedule and optimizer")
        .for_key("run.accumulate"),
    Setting{"--lora,--use_peft,--use-peft", "train",
            "Train a LoRA adapter; the model's weights are frozen and keep the format of their file"}
        .for_key("adapter.method", "lora")
        .as_variable("LUMEN_TRAIN_LORA"),
    Setting{"--dora,--use_dora,--use-dora", "train", "Train a LoRA adapter with magnitudes of rows (DoRA)"}
        .under("Adapters")
        .for_key("adapter.method", "dora"),
    Setting{"--lora-rank,--lora_rank,--lora_r,--lora-r", "train", "Rank of the adapter: columns of B, rows of A"}
        .under("Adapters")
        .for_key("adapter.rank"),
    Setting{"--lora-alpha,--lora_alpha", "train", "The adapter is scaled by alpha / rank"}
        .under("Adapters")
        .for_key("adapter.alpha"),
    Setting{"--lora-dropout,--lora_dropout", "train", "Dropout of the adapter's inputs"}
        .under("Adapters")
        .for_key("adapter.dropout"),
    Setting{"--lora-targets,--lora_target,--lora-target,--lora_target_modules,--target_modules,--target-modules",
            "train",
            "Weights with an adapter: roles, names or their ends (wq, q_proj, attn_q), patterns, or all-linear"}
        .under("Adapters")
        .for_key("adapter.targets")
        .takes("A,B,.."),
    Setting{"--rslora,--use_rslora,--use-rslora", "train", "Scale the adapter by alpha / sqrt(rank) (rsLoRA)"}
        .under("Adapters")
        .for_key("adapter.rs_lora"),
    Setting{"--lora-plus,--lora_plus,--loraplus_lr_ratio", "train", "Ratio of B's learning rate to A's (LoRA+)"}
        .under("Adapters")
        .for_key("adapter.b_rate"),
    Setting{"--lora-init,--lora_init,--init_lora_weights", "train",
            "Initial values: default; or pissa, pissa_niter_N, loftq, loftq_iter_N, which write a changed base model"}
        .under("Adapters")
        .for_key("adapter.init")
        .takes("NAME"),
    Setting{"--lora-base-type,--lora_base_type", "train",
            "Format of that base model: base (each weight's own), a format or a mixture"}
        .under("Adapters")
        .for_key("adapter.base_type")
        .takes("FORMAT"),
    Setting{"--objective", "train",
            "Objective (loss): a name from the library, or a text NAME.lum; by default the cross entropy of tokens"}
        .under("Objective")
        .for_key("objective.name")
        .reading(Reads::file),
    Setting{"--teacher,--teacher_model,--teacher-model", "train",
            "Teacher of a distillation, in any format; by default the model without its adapter"}
        .under("Objective")
        .for_key("objective.teacher")
        .takes("MODEL")
        .reading(Reads::model),
    Setting{"--ship", "train",
            "Train the adapter through quantization to this format or mixture (base: each weight's own). model.gguf "
            "then is exactly the trained model, which the run verifies"}
        .under("Training inside the rounding")
        .for_key("ship.type")
        .takes("FORMAT"),
    Setting{"--ship-learned", "train", "Also train scales and offsets of the shipped format"}
        .under("Training inside the rounding")
        .for_key("ship.fields", "learned"),
    Setting{"--ship-magnitudes", "train", "Also train a magnitude for each group of the shipped format (DL-QAT)"}
        .under("Training inside the rounding")
        .for_key("ship.magnitudes"),
    Setting{"--max-kl", "train", "Largest divergence of the shipped file from the trained model, in nats per token"}
        .under("Training inside the rounding")
        .for_key("ship.max_kl")
        .as_variable("LUMEN_TRAIN_MAX_KL"),
    Setting{"--merge", "train", "Also write the model with the adapter merged: base, a format or a mixture"}
        .under("Adapters")
        .for_key("output.merge")
        .takes("TYPE"),
    Setting{"--validation,--val_set_size,--val_size", "train", "Share of the data kept for validation"}
        .under("Data")
        .for_key("data.validation"),
    Setting{"--validation-data,--validation_data,--validation_file", "train",
            "Validation files, instead of a share of the data"}
        .under("Data")
        .for_key("data.validation_data")
        .takes("FILE")
        .reading(Reads::data),
    Setting{"--eval-every,--eval_steps,--eval-steps", "train", "Steps between evaluations; 0: only at the end"}
        .under("Evaluation")
        .for_key("run.evaluate_every"),
    Setting{"--save-every,--save_steps,--save-steps", "train", "Steps between checkpoints; 0: only at the end"}
        .under("Checkpoints")
        .for_key("run.save_every"),
    Setting{"--keep,--save_total_limit,--save-total-limit", "train", "Checkpoints kept; 0: all"}
        .under("Checkpoints")
        .for_key("run.keep")
        .as_variable("LUMEN_KEEP_CHECKPOINTS"),
    Setting{"--on-nan,--on_nan", "train",
            "What to do when a loss, gradient or weight is not finite: stop, or rollback (continue from the last good "
            "checkpoint without the batches after it)"}
        .under("Checkpoints")
        .for_key("run.on_nan"),
    Setting{"--spike-factor,--spike_factor", "train",
            "Treat a loss or gradient norm above this multiple of the last 50 steps' median in the same way; 0: never"}
        .under("Checkpoints")
        .for_key("run.spike_factor"),
    Setting{"--rollbacks", "train", "Most rollbacks of a run"}.under("Checkpoints").for_key("run.rollbacks"),
    Setting{"--eval-tasks,--eval_tasks", "train", "Tasks to run at evaluations: names or task files"}
        .under("Evaluation")
        .for_key("evaluation.tasks")
        .takes("NAME,..")
        .reading(Reads::file),
    Setting{"--eval-kl,--eval_kl", "train",
            "At evaluations also report the KL divergence from the reference model on the validation data"}
        .under("Evaluation")
        .for_key("evaluation.kl"),
    Setting{"--eval-data,--eval_data", "train", "Folder with the tasks' data"}
        .under("Evaluation")
        .for_key("evaluation.data")
        .takes("DIR")
        .reading(Reads::tasks),
    Setting{"--eval-limit,--eval_limit", "train", "Most rows of each task; 0: all"}
        .under("Evaluation")
        .for_key("evaluation.limit"),
    Setting{"--sample-prompt,--sample_prompt", "train",
            "File with prompts, one on each line, that the model continues at evaluations"}
        .under("Evaluation")
        .for_key("evaluation.samples")
        .takes("TEXT"),
    Setting{"--sample-tokens,--sample_tokens", "train", "Most tokens of each of these continuations"}
        .under("Evaluation")
        .for_key("evaluation.sample_tokens"),
    Setting{"--early-stopping,--early_stopping_patience,--early-stopping-patience", "train",
            "Stop after this many evaluations without an improvement; 0: never"}
        .under("Evaluation")
        .for_key("evaluation.early_stopping"),
    Setting{"--metric,--metric_for_best_model,--metric-for-best-model", "train",
            "Figure that tells which evaluation is best: validation_loss, or TASK.FIGURE of --eval-tasks"}
        .under("Evaluation")
        .for_key("evaluation.metric"),
    Setting{"--load-best,--load_best_model_at_end,--load-best-model-at-end", "train",
            "Write the model of the best evaluation, not of the last step"}
        .under("Evaluation")
        .for_key("evaluation.load_best"),
    Setting{"--tensorboard", "train", "Also write event files for TensorBoard, to the folder tensorboard"}
        .under("Evaluation")
        .for_key("report.tensorboard"),
    Setting{"-s,--seed", "train", "Seed of the initial weights and the order of the data"}.for_key("run.seed"),
    Setting{
        "--precision", "train",
        "Float type of the operands of products and attention (with an 8-bit type: a scale for each tensor, and bf16 "
        "for attention and the last product); sums are f32. Or a recipe whose [products] set each operand's format"}
        .under("Number types")
        .for_key("run.precision")
        .takes("TYPE")
        .reading(Reads::file),
    Setting{"--activation-format", "train", "Format of activations as operands of products"}
        .under("Number types")
        .for_key("products.activation")
        .takes("FORMAT"),
    Setting{"--weight-format", "train", "Format of weights as operands of products; the stored weights do not change"}
        .under("Number types")
        .for_key("products.weight")
        .takes("FORMAT"),
    Setting{"--gradient-format", "train", "Format of gradients as operands of products"}
        .under("Number types")
        .for_key("products.gradient")
        .takes("FORMAT"),
    Setting{"--attention-format", "train", "Format of queries, keys and values as operands of attention"}
        .under("Number types")
        .for_key("products.attention")
        .takes("FORMAT"),
    Setting{"--kept-format", "train", "Format of the activations that are kept for the backward pass"}
        .under("Memory")
        .for_key("memory.kept")
        .takes("FORMAT"),
    Setting{
        "--recompute,--gradient-checkpointing,--gradient_checkpointing", "train",
        "Gradient checkpointing: activations to compute again instead of keeping them: none, maps (elementwise results "
        "only), layers, auto (what does not fit), or the memory that activations may take; results have the same bits"}
        .under("Memory")
        .for_key("run.recompute")
        .takes("none|maps|layers|auto|4GiB"),
    Setting{"--memory", "train",
            "Memory limit of the device: choose the cheapest --recompute and --offload that fit, and print them with "
            "their cost"}
        .under("Memory")
        .for_key("memory.limit")
        .takes("24G")
        .as_variable("LUMEN_MEMORY_LIMIT"),
    Setting{"--offload", "train",
            "States to keep outside of the device, in a file of the run's folder, in another FOLDER or in host memory: "
            "moments (the optimizer's states; same bits), layers (also parameters and gradients; a step goes layer by "
            "layer and recomputes each), activations (what the backward pass reads; --recompute then decides what is "
            "recomputed)"}
        .under("Memory")
        .for_key("memory.offload")
        .takes("moments|layers|activations[=host|FOLDER],..")
        .writing(Writes::folder_of_cache)
        .as_variable("LUMEN_OFFLOAD"),
    Setting{"--param-type,--param_type", "train",
            "Format of matrices between steps: f32, bf16, f16, or any format with an encoder; with stochastic "
            "rounding, or to nearest with compensation"}
        .under("Number types")
        .for_key("run.param_type")
        .takes("FORMAT"),
    Setting{"--param-rounding,--param_rounding", "train", "How new values are rounded to it without compensation"}
        .under("Number types")
        .for_key("run.param_rounding")
        .takes("stochastic|nearest"),
    Setting{"--param-compensation,--param_compensation", "train",
            "Keep the rounding error of parameters for the next step: in a format, or exact (with bf16: the lower half "
            "of the f32)"}
        .under("Number types")
        .for_key("run.param_compensation")
        .takes("none|exact|FORMAT"),
    Setting{"--shard,--zero,--zero_stage,--fsdp", "train",
            "What ranks hold in parts: none, states (of the optimizer; ZeRO 1), gradients (in addition; ZeRO 2), "
            "parameters (in addition, each layer's gathered before use; ZeRO 3)"}
        .under("Several processes")
        .for_key("ranks.shard")
        .takes("none|states|gradients|parameters"),
    Setting{"--reduce-type,--reduce_type", "train",
            "Format in which ranks exchange sums of gradients: f32, or any format with an encoder; the error is added "
            "in the next step"}
        .under("Several processes")
        .for_key("ranks.reduce_type")
        .takes("FORMAT"),
    Setting{"--gather-type,--gather_type", "train",
            "Format in which ranks exchange changes of parameters, with --shard"}
        .under("Several processes")
        .for_key("ranks.gather_type")
        .takes("FORMAT"),
    Setting{"--overlap-exchanges,--overlap_comm", "train",
            "Overlap exchanges with computation: on GPUs always possible, elsewhere with --shard parameters, which "
            "then needs memory for two layers; same bits. On by default; --no-overlap-exchanges turns it off"}
        .under("Several processes")
        .for_key("ranks.overlap"),
    Setting{"--tensor-parallel,--tensor_parallel,--tp", "train",
            "Number of ranks that hold one model together (tensor parallelism): each has a part of the matrices, "
            "gradients and optimizer states. It must divide --ranks; groups of this many ranks share each batch"}
        .under("Several processes")
        .for_key("ranks.tensor_parallel"),
    Setting{"--sequence-parallel,--sequence_parallel,--sp", "train",
            "With --tensor-parallel: split norms and residuals between these ranks by tokens, so that each keeps only "
            "its share (sequence parallelism)"}
        .under("Several processes")
        .for_key("ranks.sequence_parallel"),
    Setting{"--output-type,--outtype", "train", "Format or mixture of the written model; f32 by default"}
        .under("Output")
        .for_key("output.type")
        .takes("TYPE"),
    Setting{"--hf", "train", "Also write a Hugging Face folder"}.under("Output").for_key("output.hugging_face"),
};

}  // namespace

std::span<const Setting> training_rows() {
  return kRows;
}

}  // namespace lumen::cli
