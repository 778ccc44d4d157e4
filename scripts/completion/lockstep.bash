# Bash completion of lockstep, as `lockstep completion` prints it.
_lockstep()
{
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} command=${COMP_WORDS[1]} options=
    COMPREPLY=()
    if ((COMP_CWORD == 1)); then
        COMPREPLY=($(compgen -W "hash components help doctor completion version" -- "$word"))
        return
    fi
    case $command:$before in
    components:--kind | components:-k) COMPREPLY=($(compgen -f -- "$word")); return ;;
    esac
    case $command in
    hash) options="--help" ;;
    components) options="--kind -k --names --markdown --help" ;;
    help) options="--help" ;;
    doctor) options="--help" ;;
    completion) options="--list --help" ;;
    version) options="--help" ;;
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
