/* Loading and sampling the 13 steps of ccsn-mri-sims: 65 HDF5 files, 24 + 9 channels of 17^3 points, to 9^3.
 *
 *     bench_fields FOLDER [ROUNDS]      FOLDER holds the *_dim17_s9_it*_float32.h5 files
 *
 * peer_fields.py does the same with h5py and NumPy. */
#include <lockstep/lockstep.h>

#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    char path[4096];
    int rounds = argc > 2 ? atoi(argv[2]) : 5;
    double best = 1e9;
    if (argc < 2) return fprintf(stderr, "usage: bench_fields FOLDER [ROUNDS]\n"), 2;
    snprintf(path, sizeof path, "%s/{feature}_dim17_s9_it{checkpoint:.0f}_float32.h5", argv[1]);
    for (int i = 0; i < rounds; i++) {
        double start = lki_now_s();
        lk_fields *fields = lk_hdf5_fields(
            path, .features = lk_names("vel", "Bvec", "dvel", "dBvec"), .targets = lk_names("tnvel"),
            .checkpoints = lk_numbers(40, 60, 80, 100, 120, 140, 160, 180, 200, 220, 233, 313, 393),
            .input_size = {17, 17, 17}, .sample_to = {9, 9, 9});
        if (!fields) return fprintf(stderr, "%s\n", lk_error()), 1;
        double took = lki_now_s() - start;
        best = took < best ? took : best;
        lk_fields_free(fields);
    }
    printf("fields: 65 files loaded and sampled in %.2f ms\n", best * 1e3);
    return 0;
}
