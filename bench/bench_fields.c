/* Loading fields.
 *
 *     bench_fields FOLDER [ROUNDS]      the 13 steps of ccsn-mri-sims (*_dim17_s9_it*_float32.h5 in FOLDER):
 * 65 HDF5 files, 24 + 9 channels of 17^3 points, sampled to 9^3 bench_fields make FOLDER          writes 64
 * files of 128^3 points, plain, and packed ones bench_fields plain|packed FOLDER [ROUNDS]      loads those
 *
 * peer_fields.py does the same with h5py and NumPy. */
#include <lockstep/lockstep.h>

#include "base/clock.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILES = 64, POINTS = 128 };

#if LOCKSTEP_HAVE_HDF5
#include <hdf5.h>

static bool write_file(const char *folder, const char *name, int number, const lk_tensor *values, bool packed)
{
    char path[4096];
    const hsize_t dims[] = {POINTS, POINTS, POINTS}, chunk[] = {16, POINTS, POINTS};
    snprintf(path, sizeof path, "%s/%s_%d.h5", folder, name, number);
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    hid_t space = H5Screate_simple(3, dims, NULL), how = H5Pcreate(H5P_DATASET_CREATE);
    if (packed) H5Pset_chunk(how, 3, chunk);
    if (packed) H5Pset_deflate(how, 4);
    hid_t array = H5Dcreate2(file, "field", H5T_IEEE_F32LE, space, H5P_DEFAULT, how, H5P_DEFAULT);
    bool written = H5Dwrite(array, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values->data) >= 0;
    H5Dclose(array);
    H5Pclose(how);
    H5Sclose(space);
    H5Fclose(file);
    return written;
}

static int make_files(const char *folder)
{
    lk_tensor *values = lk_tensor_create(LK_F32, LK_SHAPE(POINTS, POINTS, POINTS));
    bool written = values != NULL;
    for (int i = 0; i < FILES && written; i++) {
        for (int64_t at = 0; at < lk_tensor_count(values); at++)
            ((float *)values->data)[at] = sinf((float)at * 0.001f) + 1e-3f * (float)(rand() % 1000);
        written = write_file(folder, "plain", i, values, false) &&
                  (i >= FILES / 8 || write_file(folder, "packed", i, values, true));
    }
    lk_tensor_free(values);
    return written ? 0 : (fprintf(stderr, "%s: the files could not be written\n", folder), 1);
}
#else
static int make_files(const char *folder)
{
    return fprintf(stderr, "%s: this build has no HDF5\n", folder), 1;
}
#endif

static int load_files(const char *kind, const char *folder, int rounds)
{
    char path[4096];
    double best = 1e9, steps[FILES];
    int count = strcmp(kind, "plain") == 0 ? FILES : FILES / 8;
    for (int i = 0; i < count; i++) steps[i] = i;
    snprintf(path, sizeof path, "%s/{feature}_{checkpoint:.0f}.h5", folder);
    for (int i = 0; i < rounds; i++) {
        double start = lki_now_s();
        lk_fields *fields = lk_hdf5_fields(path, .features = lk_names(kind), .checkpoints = {steps, count},
                                           .input_size = {POINTS, POINTS, POINTS});
        if (!fields) return fprintf(stderr, "%s\n", lk_error()), 1;
        double took = lki_now_s() - start;
        best = took < best ? took : best;
        lk_fields_free(fields);
    }
    printf("fields: %d %s files of 8 MB loaded in %.0f ms\n", count, kind, best * 1e3);
    return 0;
}

int main(int argc, char **argv)
{
    char path[4096];
    if (argc == 3 && strcmp(argv[1], "make") == 0) return make_files(argv[2]);
    if (argc > 2 && (strcmp(argv[1], "plain") == 0 || strcmp(argv[1], "packed") == 0))
        return load_files(argv[1], argv[2], argc > 3 ? atoi(argv[3]) : 5);
    int rounds = argc > 2 ? atoi(argv[2]) : 5;
    double best = 1e9;
    if (argc < 2) return fprintf(stderr, "usage: bench_fields [make|plain|packed] FOLDER [ROUNDS]\n"), 2;
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
