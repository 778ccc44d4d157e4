/* Reads an HDF5 file that does not exist: the plug-in for HDF5 says so, or the library that there is no
 * plug-in. */
#include <lockstep/lockstep.h>

#include <stdio.h>

int main(void)
{
    lk_tensor *tensor = lk_hdf5_read("nowhere.h5", NULL);
    puts(tensor ? "there is a nowhere.h5" : lk_error());
    lk_tensor_free(tensor);
    return tensor != NULL;
}
