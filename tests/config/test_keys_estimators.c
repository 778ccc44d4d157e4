/* Each key of estimators and their models has an effect: tests/config/keys/5_estimators.keys. */
#include "key_cases.h"

int main(int argc, char **argv)
{
    return lkt_keys_main("5_", argc, argv);
}
