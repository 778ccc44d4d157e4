/* Each key of callbacks, loggers, engines, runners and calls has an effect: tests/config/keys/4_run.keys. */
#include "key_cases.h"

int main(int argc, char **argv)
{
    return lkt_keys_main("4_", argc, argv);
}
