# Bash completion of lockstep, as `lockstep completion` prints it.
_lockstep()
{
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} command=${COMP_WORDS[1]} options=
    COMPREPLY=()
    if ((COMP_CWORD == 1)); then
        COMPREPLY=($(compgen -W "run tune watch evaluate predict plot board create gtb get-examples test bench hash import export components help doctor completion version manual tokenize" -- "$word"))
        return
    fi
    case $command:$before in
    run:--config | run:-C) COMPREPLY=($(compgen -f -- "$word")); return ;;
    run:--configs) COMPREPLY=($(compgen -f -- "$word")); return ;;
    run:--expdir) COMPREPLY=($(compgen -f -- "$word")); return ;;
    run:--logdir) COMPREPLY=($(compgen -f -- "$word")); return ;;
    run:--num-epochs | run:-e) COMPREPLY=($(compgen -f -- "$word")); return ;;
    run:--batch-size | run:-b) COMPREPLY=($(compgen -f -- "$word")); return ;;
    run:--num-workers | run:-j) COMPREPLY=($(compgen -f -- "$word")); return ;;
    run:--seed) COMPREPLY=($(compgen -f -- "$word")); return ;;
    run:--resume) COMPREPLY=($(compgen -f -- "$word")); return ;;
    run:--autoresume) COMPREPLY=($(compgen -W "last best" -- "$word")); return ;;
    run:--save-every) COMPREPLY=($(compgen -f -- "$word")); return ;;
    run:--nproc) COMPREPLY=($(compgen -f -- "$word")); return ;;
    run:--shards) COMPREPLY=($(compgen -f -- "$word")); return ;;
    run:--max-restarts) COMPREPLY=($(compgen -f -- "$word")); return ;;
    run:--min-nodes) COMPREPLY=($(compgen -f -- "$word")); return ;;
    run:--comm) COMPREPLY=($(compgen -W "auto shm gloo mpi nccl" -- "$word")); return ;;
    run:--device) COMPREPLY=($(compgen -W "auto cpu cuda ref" -- "$word")); return ;;
    run:--precision) COMPREPLY=($(compgen -W "fp32 bf16 fp16" -- "$word")); return ;;
    run:--log-every) COMPREPLY=($(compgen -f -- "$word")); return ;;
    run:--world-size) COMPREPLY=($(compgen -f -- "$word")); return ;;
    run:--rank | run:-r) COMPREPLY=($(compgen -f -- "$word")); return ;;
    run:--host | run:-m) COMPREPLY=($(compgen -f -- "$word")); return ;;
    run:--token-file) COMPREPLY=($(compgen -f -- "$word")); return ;;
    run:--master) COMPREPLY=($(compgen -f -- "$word")); return ;;
    run:--master-addr) COMPREPLY=($(compgen -f -- "$word")); return ;;
    run:--port) COMPREPLY=($(compgen -f -- "$word")); return ;;
    tune:--config | tune:-C) COMPREPLY=($(compgen -f -- "$word")); return ;;
    tune:--configs) COMPREPLY=($(compgen -f -- "$word")); return ;;
    tune:--expdir) COMPREPLY=($(compgen -f -- "$word")); return ;;
    tune:--logdir) COMPREPLY=($(compgen -f -- "$word")); return ;;
    tune:--trials | tune:-n) COMPREPLY=($(compgen -f -- "$word")); return ;;
    tune:--n-trials) COMPREPLY=($(compgen -f -- "$word")); return ;;
    tune:--jobs | tune:-j) COMPREPLY=($(compgen -f -- "$word")); return ;;
    tune:--n-jobs) COMPREPLY=($(compgen -f -- "$word")); return ;;
    tune:--search) COMPREPLY=($(compgen -W "random grid tpe" -- "$word")); return ;;
    tune:--pruner) COMPREPLY=($(compgen -W "none median halving" -- "$word")); return ;;
    tune:--seed) COMPREPLY=($(compgen -f -- "$word")); return ;;
    tune:--timeout) COMPREPLY=($(compgen -f -- "$word")); return ;;
    tune:--max-failures) COMPREPLY=($(compgen -f -- "$word")); return ;;
    watch:--metric | watch:-m) COMPREPLY=($(compgen -f -- "$word")); return ;;
    watch:--every) COMPREPLY=($(compgen -f -- "$word")); return ;;
    evaluate:--config | evaluate:-C) COMPREPLY=($(compgen -f -- "$word")); return ;;
    evaluate:--expdir) COMPREPLY=($(compgen -f -- "$word")); return ;;
    evaluate:--checkpoint | evaluate:-c) COMPREPLY=($(compgen -f -- "$word")); return ;;
    evaluate:--loader | evaluate:-l) COMPREPLY=($(compgen -f -- "$word")); return ;;
    evaluate:--device) COMPREPLY=($(compgen -W "auto cpu cuda ref" -- "$word")); return ;;
    evaluate:--output | evaluate:-o) COMPREPLY=($(compgen -f -- "$word")); return ;;
    predict:--config | predict:-C) COMPREPLY=($(compgen -f -- "$word")); return ;;
    predict:--expdir) COMPREPLY=($(compgen -f -- "$word")); return ;;
    predict:--checkpoint | predict:-c) COMPREPLY=($(compgen -f -- "$word")); return ;;
    predict:--loader | predict:-l) COMPREPLY=($(compgen -f -- "$word")); return ;;
    predict:--device) COMPREPLY=($(compgen -W "auto cpu cuda ref" -- "$word")); return ;;
    predict:--output | predict:-o) COMPREPLY=($(compgen -f -- "$word")); return ;;
    plot:--output | plot:-o) COMPREPLY=($(compgen -f -- "$word")); return ;;
    plot:--format) COMPREPLY=($(compgen -W "both png svg" -- "$word")); return ;;
    plot:--metric) COMPREPLY=($(compgen -f -- "$word")); return ;;
    board:--port | board:-p) COMPREPLY=($(compgen -f -- "$word")); return ;;
    create:--name | create:-n) COMPREPLY=($(compgen -f -- "$word")); return ;;
    bench:--config | bench:-C) COMPREPLY=($(compgen -f -- "$word")); return ;;
    bench:--model | bench:-m) COMPREPLY=($(compgen -W "mnist-linear mlp convnet cnn3d resnet-50" -- "$word")); return ;;
    bench:--latency-us) COMPREPLY=($(compgen -f -- "$word")); return ;;
    bench:--bandwidth-gbit) COMPREPLY=($(compgen -f -- "$word")); return ;;
    bench:--overhead-us) COMPREPLY=($(compgen -f -- "$word")); return ;;
    bench:--ranks-per-host) COMPREPLY=($(compgen -f -- "$word")); return ;;
    bench:--max-ranks) COMPREPLY=($(compgen -f -- "$word")); return ;;
    bench:--backend) COMPREPLY=($(compgen -W "auto shm gloo mpi" -- "$word")); return ;;
    bench:--bucket-mb) COMPREPLY=($(compgen -f -- "$word")); return ;;
    bench:--accumulate) COMPREPLY=($(compgen -f -- "$word")); return ;;
    bench:--compute-ms) COMPREPLY=($(compgen -f -- "$word")); return ;;
    bench:--nproc) COMPREPLY=($(compgen -f -- "$word")); return ;;
    bench:--engine) COMPREPLY=($(compgen -W "cpu" -- "$word")); return ;;
    bench:--filter) COMPREPLY=($(compgen -f -- "$word")); return ;;
    bench:--seconds) COMPREPLY=($(compgen -f -- "$word")); return ;;
    import:--output | import:-o) COMPREPLY=($(compgen -f -- "$word")); return ;;
    export:--to) COMPREPLY=($(compgen -W "pth safetensors npz onnx" -- "$word")); return ;;
    export:--output | export:-o) COMPREPLY=($(compgen -f -- "$word")); return ;;
    export:--config | export:-C) COMPREPLY=($(compgen -f -- "$word")); return ;;
    export:--expdir) COMPREPLY=($(compgen -f -- "$word")); return ;;
    export:--checkpoint | export:-c) COMPREPLY=($(compgen -f -- "$word")); return ;;
    export:--weights | export:-w) COMPREPLY=($(compgen -W "bf16 int8" -- "$word")); return ;;
    components:--kind | components:-k) COMPREPLY=($(compgen -f -- "$word")); return ;;
    components:--expdir) COMPREPLY=($(compgen -f -- "$word")); return ;;
    help:--expdir) COMPREPLY=($(compgen -f -- "$word")); return ;;
    completion:--shell | completion:-s) COMPREPLY=($(compgen -W "bash fish zsh" -- "$word")); return ;;
    manual:--man-pages) COMPREPLY=($(compgen -f -- "$word")); return ;;
    tokenize:--output | tokenize:-o) COMPREPLY=($(compgen -f -- "$word")); return ;;
    tokenize:--tokenizer | tokenize:-t) COMPREPLY=($(compgen -W "bytes chars bpe" -- "$word")); return ;;
    tokenize:--vocab) COMPREPLY=($(compgen -f -- "$word")); return ;;
    tokenize:--merges) COMPREPLY=($(compgen -f -- "$word")); return ;;
    tokenize:--end-token) COMPREPLY=($(compgen -f -- "$word")); return ;;
    tokenize:--save-vocab) COMPREPLY=($(compgen -f -- "$word")); return ;;
    esac
    case $command in
    run) options="--config -C --configs --expdir --logdir --num-epochs -e --batch-size -b --num-workers -j --seed --resume --autoresume --save-every --overwrite --ddp --distributed --nproc --shards --max-restarts --min-nodes --comm --device --precision --fp16 --amp --tf32 --benchmark --deterministic --check --overfit --timeit --log-every --profile --verbose -v --quiet -q --world-size --rank -r --host -m --token-file --master --master-addr --port --help" ;;
    tune) options="--config -C --configs --expdir --logdir --trials -n --n-trials --jobs -j --n-jobs --search --pruner --seed --timeout --max-failures --resume --new --quiet -q --help" ;;
    watch) options="--metric -m --every --help" ;;
    evaluate) options="--config -C --expdir --checkpoint -c --loader -l --device --json --output -o --verbose -v --help" ;;
    predict) options="--config -C --expdir --checkpoint -c --loader -l --device --output -o --json --verbose -v --help" ;;
    plot) options="--output -o --format --metric --help" ;;
    board) options="--port -p --help" ;;
    create) options="--name -n --gtb --get-train-backend --help" ;;
    gtb) options="--help" ;;
    get-examples) options="--help" ;;
    test) options="--help" ;;
    bench) options="--config -C --model -m --simulate --measure --latency-us --bandwidth-gbit --overhead-us --ranks-per-host --max-ranks --backend --bucket-mb --accumulate --compress --compute-ms --nproc --split --ops --engine --filter --seconds --json --help" ;;
    hash) options="--help" ;;
    import) options="--output -o --help" ;;
    export) options="--to --output -o --config -C --expdir --checkpoint -c --weights -w --help" ;;
    components) options="--kind -k --expdir --names --markdown --help" ;;
    help) options="--expdir --help" ;;
    doctor) options="--help" ;;
    completion) options="--list --shell -s --help" ;;
    version) options="--help" ;;
    manual) options="--list -l --man-pages --help" ;;
    tokenize) options="--output -o --tokenizer -t --vocab --merges --end-token --save-vocab --help" ;;
    esac
    if [[ $word == -* ]]; then
        COMPREPLY=($(compgen -W "$options" -- "$word"))
    elif [[ $command == help ]]; then
        COMPREPLY=($(compgen -W "$(lockstep components --names 2>/dev/null)" -- "$word"))
    else
        COMPREPLY=($(compgen -f -- "$word"))
    fi
}
complete -o filenames -F _lockstep lockstep
