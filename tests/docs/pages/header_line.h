/* <!-- expect: 101 columns, where 100 is the most --> */
/* A comment of a public header that goes on until it has reached the hundred and first column. () */
