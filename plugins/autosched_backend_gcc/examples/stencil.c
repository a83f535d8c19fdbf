// Jacobi steps of the five-point stencil, blocked.
// knob TILE_I: 16 8 32 64 256
// knob TILE_J: 16 8 32 64 256
// flops: 1290320
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { N = 256, STEPS = 4 };
static float grids[2][N][N];

static int min(int x, int y) { return x < y ? x : y; }

static void step(float (*from)[N], float (*to)[N]) {
    for (int i0 = 1; i0 < N - 1; i0 += TILE_I)
        for (int j0 = 1; j0 < N - 1; j0 += TILE_J)
            for (int i = i0; i < min(i0 + TILE_I, N - 1); i++)
                for (int j = j0; j < min(j0 + TILE_J, N - 1); j++)
                    to[i][j] = 0.2f * (from[i][j] + from[i - 1][j] + from[i + 1][j] + from[i][j - 1] + from[i][j + 1]);
}

static void fill(void) {
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
            grids[0][i][j] = grids[1][i][j] = (i * 31 + j * 17) % 100;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}

int main(int argc, char **argv) {
    for (int repeat = argc > 1 ? atoi(argv[1]) : 1; repeat > 0; repeat--) {
        fill();
        double began_at = now();
        for (int turn = 0; turn < STEPS; turn++)
            step(grids[turn % 2], grids[(turn + 1) % 2]);
        printf("%.9f\n", now() - began_at);
    }
    printf("output %g %g %g\n", grids[0][1][1], grids[0][N / 2][N / 3], grids[0][N - 2][N - 2]);
}
