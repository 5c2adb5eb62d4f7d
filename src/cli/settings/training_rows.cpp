// Options of `lumen train`.
#include "cli/settings/rows.h"

namespace lumen::cli {
namespace {

constexpr Setting kRows[] = {
    Setting{"-r,--recipe", "train",
            "A recipe by name, or a .toml file (several with commas between: each on top of those before); flags below "
            "override it"}
        .reading(Reads::file)
        .takes("NAME|FILE"),
    Setting{"-m,--model,--model_name_or_path", "train",
            "Start from this model, in any format, instead of fresh weights"}
        .reading(Reads::model)
        .takes("FILE")
        .as_variable("LUMEN_TRAIN_MODEL"),
    Setting{"-o,--out,--output,--output_dir,--output-dir", "train",
            "Folder for checkpoints, metrics and the model; lumen-out, or the folder that is resumed"}
        .writing(Writes::folder_of_run)
        .takes("DIR"),
    Setting{"--overwrite,--overwrite_output_dir", "train",
            "Replace the model and remove the checkpoints that --out holds of another run"}
        .under("Checkpoints")
        .no_variable(),
    Setting{"--resume,--resume_from_checkpoint,--resume-from-checkpoint", "train",
            "Go on from a checkpoint, by its own recipe; without a value, the latest one in --out"}
        .reading(Reads::resumed)
        .takes("[DIR]")
        .no_variable(),
    Setting{"--allow-changed-data", "train", "Resume although data files, or a teacher, are not what they were"}.under(
        "Data"),
    Setting{"--allow-changed-recipe", "train",
            "Resume with other rates, steps, batches or data order than the checkpoint's"}
        .under("Checkpoints"),
    Setting{"--objective-setting", "train",
            "A number of the objective, e.g. label_smoothing=0.1; more than once for several"}
        .under("Objective")
        .takes("NAME=NUMBER")
        .one_each(),
    Setting{"--beta", "train", "--objective-setting beta=.."}.under("Objective"),
    Setting{"--report_to,--report-to", "train", "tensorboard: the same as --tensorboard; none"}
        .under("Evaluation")
        .one_of("tensorboard none"),
    Setting{"--bf16", "train", "The same as --precision bf16"}.under("Number types"),
    Setting{"--format,--qat", "train", "Quantization-aware: round every matrix to this format in the loop"}
        .under("Training inside the rounding")
        .as_variable("LUMEN_TRAIN_FORMAT"),
    Setting{"--ranks,--nproc-per-node,--nproc_per_node,--num-processes,--num_processes", "train",
            "Processes on this host that share each batch, one GPU each with --device cuda; torchrun, srun and mpirun "
            "start ranks themselves"}
        .under("Several processes")
        .from(1, 256)
        .takes("N"),
    Setting{"--print-config", "train", "Print the resolved recipe and stop"}.no_variable(),
    Setting{"--plan", "train", "Print what the run needs: memory by kind, and time; nothing is trained or written"}
        .no_variable(),
    Setting{"--explain", "train", "Print the kernels of one step and their times at the end"}.under("Output"),
    Setting{"--family", "train", "Model family"}.under("Model").for_key("model.family"),
    Setting{"--shape,--size", "train", "Named size of the family"}.for_key("model.size"),
    Setting{"--data,--dataset", "train",
            "Texts, chats or pairs (.txt .md .jsonl .json .csv .tsv, also .gz), or a folder; several with commas; "
            "without it, the built-in text"}
        .for_key("data.path")
        .takes("FILE")
        .reading(Reads::data),
    Setting{"--form,--data-form,--data_form", "train", "What rows are: auto, texts, chats, pairs or labels"}
        .under("Data")
        .for_key("data.form"),
    Setting{"--columns", "train", "What columns stand for: prompt=Q,completion=A"}
        .under("Data")
        .for_key("data.columns")
        .takes("NAME=COLUMN"),
    Setting{"--chat-template,--chat_template", "train", "By name or from a file; without it, the model's own"}
        .under("Data")
        .for_key("data.chat_template")
        .takes("NAME|FILE")
        .reading(Reads::file),
    Setting{"--train-on,--train_on", "train", "Which tokens of chats are learned: assistant, last (answer) or all"}
        .under("Data")
        .for_key("data.train_on"),
    Setting{"--mix,--interleave_probs,--interleave-probs", "train", "Shares of several data sets: 0.7,0.3"}
        .under("Data")
        .for_key("data.mix")
        .takes("SHARE"),
    Setting{"--epochs,--num_train_epochs,--num-train-epochs,--num_epochs", "train",
            "Rounds over the data instead of --steps"}
        .for_key("data.epochs"),
    Setting{"--packing,--sample_packing,--sample-packing", "train",
            "Put several examples into one window, attention kept apart"}
        .under("Data")
        .for_key("data.packing"),
    Setting{"--overflow", "train", "Examples longer than a window: cut or drop"}.under("Data").for_key("data.overflow"),
    Setting{"--strict", "train", "A row that cannot be used is an error"}.under("Data").for_key("data.strict"),
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
    Setting{"--warmup-ratio,--warmup_ratio", "train", "The same as a share of all steps, rounded up"}
        .under("Schedule and optimizer")
        .for_key("schedule.warmup_ratio")
        .takes("SHARE"),
    Setting{"--schedule,--lr_scheduler_type,--lr-scheduler-type", "train",
            "cosine, linear, constant, wsd, inverse_sqrt, polynomial or cosine_restarts"}
        .under("Schedule and optimizer")
        .for_key("schedule.shape"),
    Setting{"--optimizer,--optim", "train", "adamw, lion, sgd, muon, adafactor, or one of your own; adamw"}
        .under("Schedule and optimizer")
        .for_key("optimizer.name"),
    Setting{
        "--moments", "train",
        "What the optimizer's states of matrices are held in between steps: f32, bf16, or any format with an encoder"}
        .under("Schedule and optimizer")
        .for_key("optimizer.moments")
        .takes("FORMAT"),
    Setting{"--second-moments", "train", "The same of sums of squares; without it as --moments"}
        .under("Schedule and optimizer")
        .for_key("optimizer.second_moments")
        .takes("FORMAT"),
    Setting{"--momentum", "train", ""}.under("Schedule and optimizer").for_key("optimizer.momentum"),
    Setting{"--ema,--ema-decay,--ema_decay", "train",
            "Keep a mean of the weights over the steps, each counting so many times as much as the one before; 0: none"}
        .under("Schedule and optimizer")
        .for_key("optimizer.ema_decay"),
    Setting{"--weight-decay,--weight_decay", "train", "On matrices only"}
        .under("Schedule and optimizer")
        .for_key("optimizer.weight_decay"),
    Setting{"--max-grad-norm,--max_grad_norm,--clip", "train", "Gradients are scaled down to this norm; 0: never"}
        .under("Schedule and optimizer")
        .for_key("optimizer.max_grad_norm"),
    Setting{"--beta1,--adam_beta1", "train", ""}.under("Schedule and optimizer").for_key("optimizer.beta1"),
    Setting{"--beta2,--adam_beta2", "train", ""}.under("Schedule and optimizer").for_key("optimizer.beta2"),
    Setting{"--epsilon,--adam_epsilon", "train", ""}.under("Schedule and optimizer").for_key("optimizer.epsilon"),
    Setting{"--accumulate,--gradient_accumulation_steps,--gradient-accumulation-steps", "train", "Batches per step"}
        .under("Schedule and optimizer")
        .for_key("run.accumulate"),
    Setting{"--lora,--use_peft,--use-peft", "train",
            "Train an adapter; the model's weights stay frozen, and packed as in their file"}
        .for_key("adapter.method", "lora")
        .as_variable("LUMEN_TRAIN_LORA"),
    Setting{"--dora,--use_dora,--use-dora", "train", "The same with magnitudes of rows (DoRA)"}
        .under("Adapters")
        .for_key("adapter.method", "dora"),
    Setting{"--lora-rank,--lora_rank,--lora_r,--lora-r", "train", "Columns of the adapter's B, rows of its A"}
        .under("Adapters")
        .for_key("adapter.rank"),
    Setting{"--lora-alpha,--lora_alpha", "train", "The adapter counts alpha / rank"}
        .under("Adapters")
        .for_key("adapter.alpha"),
    Setting{"--lora-dropout,--lora_dropout", "train", "Share of its inputs that each step leaves out"}
        .under("Adapters")
        .for_key("adapter.dropout"),
    Setting{"--lora-targets,--lora_target,--lora-target,--lora_target_modules,--target_modules,--target-modules",
            "train", "Which weights get one: roles, names or their ends (wq, q_proj, attn_q), patterns, or all-linear"}
        .under("Adapters")
        .for_key("adapter.targets")
        .takes("A,B,.."),
    Setting{"--rslora,--use_rslora,--use-rslora", "train", "The adapter counts alpha / sqrt(rank)"}
        .under("Adapters")
        .for_key("adapter.rs_lora"),
    Setting{"--lora-plus,--lora_plus,--loraplus_lr_ratio", "train", "B learns so many times as fast as A (LoRA+)"}
        .under("Adapters")
        .for_key("adapter.b_rate"),
    Setting{"--lora-init,--lora_init,--init_lora_weights", "train",
            "What it begins with: default; or pissa, pissa_niter_N, loftq, loftq_iter_N, which write a base of the "
            "run's own"}
        .under("Adapters")
        .for_key("adapter.init")
        .takes("NAME"),
    Setting{"--lora-base-type,--lora_base_type", "train",
            "What that base is held in: base (each weight's own), a format or a mixture"}
        .under("Adapters")
        .for_key("adapter.base_type")
        .takes("FORMAT"),
    Setting{"--objective", "train",
            "What is made small: a name of the library, or a text NAME.lum; without it the tokens' loss"}
        .under("Objective")
        .for_key("objective.name")
        .reading(Reads::file),
    Setting{"--teacher,--teacher_model,--teacher-model", "train",
            "The model that distillation learns from, in any format; without it the model without its adapter"}
        .under("Objective")
        .for_key("objective.teacher")
        .takes("MODEL")
        .reading(Reads::model),
    Setting{"--ship", "train",
            "Train the adapter inside the rounding to this format or mixture (base: each weight's own): model.gguf is "
            "then what was trained, checked before success is reported"}
        .under("Training inside the rounding")
        .for_key("ship.type")
        .takes("FORMAT"),
    Setting{"--ship-learned", "train", "Train scales and offsets of the shipped format as well"}
        .under("Training inside the rounding")
        .for_key("ship.fields", "learned"),
    Setting{"--ship-magnitudes", "train", "Train a magnitude for each group of the shipped format as well (DL-QAT)"}
        .under("Training inside the rounding")
        .for_key("ship.magnitudes"),
    Setting{"--max-kl", "train", "Nats per token the shipped file may be away from what was trained"}
        .under("Training inside the rounding")
        .for_key("ship.max_kl")
        .as_variable("LUMEN_TRAIN_MAX_KL"),
    Setting{"--merge", "train", "Also write the model with the adapter folded in: base, a format or a mixture"}
        .under("Adapters")
        .for_key("output.merge")
        .takes("TYPE"),
    Setting{"--validation,--val_set_size,--val_size", "train", "Share of the data kept for validation"}
        .under("Data")
        .for_key("data.validation"),
    Setting{"--validation-data,--validation_data,--validation_file", "train",
            "Files to validate on, instead of a share"}
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
            "What happens when a loss, gradient or weight is not finite: stop, or rollback (go on from the last good "
            "checkpoint without the batches that led there)"}
        .under("Checkpoints")
        .for_key("run.on_nan"),
    Setting{"--spike-factor,--spike_factor", "train",
            "A loss or gradient norm above so many times the median of the last 50 steps counts as well; 0: never"}
        .under("Checkpoints")
        .for_key("run.spike_factor"),
    Setting{"--rollbacks", "train", "How often a run may go back"}.under("Checkpoints").for_key("run.rollbacks"),
    Setting{"--eval-tasks,--eval_tasks", "train", "Tasks put to the model at evaluations: names or task files"}
        .under("Evaluation")
        .for_key("evaluation.tasks")
        .takes("NAME,..")
        .reading(Reads::file),
    Setting{"--eval-kl,--eval_kl", "train",
            "Report at evaluations how far the model has gone from its reference: KL divergence on the validation data"}
        .under("Evaluation")
        .for_key("evaluation.kl"),
    Setting{"--eval-data,--eval_data", "train", "Folder with the tasks' data"}
        .under("Evaluation")
        .for_key("evaluation.data")
        .takes("DIR")
        .reading(Reads::tasks),
    Setting{"--eval-limit,--eval_limit", "train", "Rows of each task, at most; 0: all"}
        .under("Evaluation")
        .for_key("evaluation.limit"),
    Setting{"--sample-prompt,--sample_prompt", "train",
            "Prompts, one a line, that the model goes on with at evaluations"}
        .under("Evaluation")
        .for_key("evaluation.samples")
        .takes("TEXT"),
    Setting{"--sample-tokens,--sample_tokens", "train", "Tokens of each such text, at most"}
        .under("Evaluation")
        .for_key("evaluation.sample_tokens"),
    Setting{"--early-stopping,--early_stopping_patience,--early-stopping-patience", "train",
            "End after so many evaluations without a better one; 0: never"}
        .under("Evaluation")
        .for_key("evaluation.early_stopping"),
    Setting{"--metric,--metric_for_best_model,--metric-for-best-model", "train",
            "What makes an evaluation better: validation_loss, or TASK.FIGURE of --eval-tasks"}
        .under("Evaluation")
        .for_key("evaluation.metric"),
    Setting{"--load-best,--load_best_model_at_end,--load-best-model-at-end", "train",
            "Write the model of the best evaluation, instead of the last step's"}
        .under("Evaluation")
        .for_key("evaluation.load_best"),
    Setting{"--tensorboard", "train", "Also write event files for TensorBoard, to the folder tensorboard"}
        .under("Evaluation")
        .for_key("report.tensorboard"),
    Setting{"-s,--seed", "train", "Names initial weights and the order of the data"}.for_key("run.seed"),
    Setting{"--precision", "train",
            "Float type that operands of products with parameters and of attention are rounded to (an 8 bit one: each "
            "tensor under a scale of its own, attention and the last product in bf16); sums stay f32. Or a recipe that "
            "says in [products] what each operand passes through"}
        .under("Number types")
        .for_key("run.precision")
        .takes("TYPE")
        .reading(Reads::file),
    Setting{"--activation-format", "train", "Format that activations pass through where products multiply them"}
        .under("Number types")
        .for_key("products.activation")
        .takes("FORMAT"),
    Setting{"--weight-format", "train", "The same of weights; what is trained and kept stays as it is"}
        .under("Number types")
        .for_key("products.weight")
        .takes("FORMAT"),
    Setting{"--gradient-format", "train", "The same of gradients of products' results"}
        .under("Number types")
        .for_key("products.gradient")
        .takes("FORMAT"),
    Setting{"--attention-format", "train", "The same of queries, keys and values, where attentions multiply them"}
        .under("Number types")
        .for_key("products.attention")
        .takes("FORMAT"),
    Setting{"--kept-format", "train", "What gradients read of the forward pass lies in this format between the passes"}
        .under("Memory")
        .for_key("memory.kept")
        .takes("FORMAT"),
    Setting{"--recompute,--gradient-checkpointing,--gradient_checkpointing", "train",
            "What of a step is computed again rather than kept: none, maps (elementwise work alone), layers, auto "
            "(what there is no room for), or how much the step's values may take; the same bits"}
        .under("Memory")
        .for_key("run.recompute")
        .takes("none|maps|layers|auto|4GiB"),
    Setting{"--memory", "train",
            "What the device may hold: the cheapest of --recompute and --offload that fits is chosen and printed with "
            "its cost"}
        .under("Memory")
        .for_key("memory.limit")
        .takes("24G")
        .as_variable("LUMEN_MEMORY_LIMIT"),
    Setting{
        "--offload", "train",
        "What is kept outside of the device's memory and copied to it when needed, in a file of the run's folder or of "
        "another FOLDER, "
        "or in the host's memory: moments (the optimizer's states; the same bits), layers (also the layers' parameters "
        "and gradients: a step goes layer by layer, and computes each again for its gradients), activations (what "
        "layers keep for their gradients, which are not computed again then but as --recompute says)"}
        .under("Memory")
        .for_key("memory.offload")
        .takes("moments|layers|activations[=host|FOLDER],..")
        .writing(Writes::folder_of_cache)
        .as_variable("LUMEN_OFFLOAD"),
    Setting{"--param-type,--param_type", "train",
            "What matrices are held in between steps: f32, bf16, f16, or any format with an encoder; rounded at "
            "random, or to the nearest with a compensation"}
        .under("Number types")
        .for_key("run.param_type")
        .takes("FORMAT"),
    Setting{"--param-rounding,--param_rounding", "train",
            "How new values are rounded to it where there is no compensation"}
        .under("Number types")
        .for_key("run.param_rounding")
        .takes("stochastic|nearest"),
    Setting{"--param-compensation,--param_compensation", "train",
            "What rounding loses of parameters is held, too, and counts in the next step: in a format, or exact (with "
            "bf16: the lower half of the f32)"}
        .under("Number types")
        .for_key("run.param_compensation")
        .takes("none|exact|FORMAT"),
    Setting{"--shard,--zero,--zero_stage,--fsdp", "train",
            "What several ranks hold in parts: none, states (of the optimizer; ZeRO 1), gradients (and those; ZeRO 2), "
            "parameters (and those: each layer's are gathered before it is computed; ZeRO 3)"}
        .under("Several processes")
        .for_key("ranks.shard")
        .takes("none|states|gradients|parameters"),
    Setting{"--reduce-type,--reduce_type", "train",
            "What sums of gradients go from rank to rank in: f32, or any format with an encoder; what that loses "
            "counts in the next step"}
        .under("Several processes")
        .for_key("ranks.reduce_type")
        .takes("FORMAT"),
    Setting{"--gather-type,--gather_type", "train", "The same of changes of parameters, with --shard"}
        .under("Several processes")
        .for_key("ranks.gather_type")
        .takes("FORMAT"),
    Setting{"--overlap-exchanges,--overlap_comm", "train",
            "Overlap exchanges with the computation where possible: on GPUs always, elsewhere with --shard parameters, "
            "which takes room for two layers rather than one; the same bits. So it is unless --no-overlap-exchanges "
            "says otherwise"}
        .under("Several processes")
        .for_key("ranks.overlap"),
    Setting{"--tensor-parallel,--tensor_parallel,--tp", "train",
            "Neighbouring ranks that hold one model together, each a part of its matrices, of their gradients and of "
            "the optimizer's states; it divides --ranks, and groups of so many share each batch"}
        .under("Several processes")
        .for_key("ranks.tensor_parallel"),
    Setting{"--sequence-parallel,--sequence_parallel,--sp", "train",
            "With --tensor-parallel: between products that ranks share, each computes and keeps its share of the "
            "tokens (norms, residuals), rather than all ranks the same"}
        .under("Several processes")
        .for_key("ranks.sequence_parallel"),
    Setting{"--output-type,--outtype", "train",
            "What the trained model is written in: a format or a mixture; without it f32"}
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
