/* Each key of loaders, samplers, datasets and transforms has an effect: tests/config/keys/3_data.keys. */
#include "key_cases.h"

int main(int argc, char **argv)
{
    return lkt_keys_main("3_", argc, argv);
}
