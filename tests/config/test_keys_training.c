/* Each key of losses, optimizers and schedules has an effect: tests/config/keys/2_training.keys. */
#include "key_cases.h"

int main(int argc, char **argv)
{
    return lkt_keys_main("2_", argc, argv);
}
