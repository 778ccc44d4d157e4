/* Each key of layers has an effect: tests/config/keys/1_modules.keys. */
#include "key_cases.h"

int main(int argc, char **argv)
{
    return lkt_keys_main("1_", argc, argv);
}
